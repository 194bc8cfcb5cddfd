//! The host lane: threads that the interpreter made, and what they run.
//!
//! A host thread's loop is Python code (`_host.serve`): it takes the next call from here, makes it,
//! and hands back what came of it. So no Rust frame ever lies under user code.
//!
//! # Attaching
//! A thread without work rests detached. When work comes, threads attach one at a time, so that
//! waiting for the interpreter lock is not taken for blocking, and the lane does not grow for it.
//! A thread that has the lock runs calls back to back, for about a millisecond before it lets go.
//! One that runs dry detaches before it completes its last operation: whoever waits for that finds
//! the lock free.
//!
//! How the lane grows is told in `recruiter`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clika_runtime::foreign::trace::Description;
use clika_runtime::foreign::{
    self, Executor, Failure, Fault, ForeignThread, Kind, Next, Operation, Reporter,
};
use pyo3::exceptions::PyBaseException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::exceptions::{failed, raised};
use crate::future::{FutureBase, Outcome};
use crate::gate::{self, Section, detached};
use crate::logging::{self, Logs};
use crate::own::Own;
use crate::recruiter::{self, Roll};

/// What a host thread does: the one type of foreign operation of this process.
pub(crate) enum Call {
    /// A submitted function.
    Work(Py<FutureBase>),
    /// A callback: the function and its arguments.
    Notice(Py<PyTuple>),
    /// A failure that nobody acknowledged.
    Report(Arc<Failure>),
    /// Something was written down for the log.
    Log,
}

impl Operation for Call {
    const KIND: Kind = Kind::Foreign;

    fn run(self) -> Result<(), Fault> {
        unreachable!("host threads take their calls")
    }

    /// At shutdown. The thread that ends the interpreter is attached; what any other thread drops
    /// then is left to the end of the process.
    fn skip(self, why: &Arc<Failure>) {
        match self {
            Self::Work(future) if gate::is_closing_here() => Python::attach(|py| {
                let future = future.bind(py);
                FutureBase::resolve(future, Outcome::Skipped(why));
            }),
            call => {
                let _ = std::mem::ManuallyDrop::new(call);
            }
        }
    }

    fn describe(&self) -> Description {
        match self {
            // Whoever submits is attached.
            Self::Work(future) => Python::attach(|py| future.get().describe_to_trace(py)),
            Self::Notice(_) | Self::Report(_) | Self::Log => Description::of_kind(Self::KIND),
        }
    }
}

/// What the lane keeps per process.
#[derive(Default)]
pub(crate) struct Lane {
    /// Whoever holds it is the one thread that attaches.
    attaching: Mutex<()>,
    threads: AtomicU64,
    pub(crate) roll: Roll,
    pub(crate) logs: Logs,
}

/// Starts a thread, which joins the lane; or says why there is none. An error comes from elsewhere,
/// such as Ctrl-C, and the thread is there.
pub(crate) fn start_thread(py: Python<'_>) -> PyResult<Result<(), PyErr>> {
    let lane = foreign::state::<Lane>().map_err(|error| raised(py, &error))?;
    let number = lane.threads.fetch_add(1, Ordering::Relaxed) + 1;
    let failure = python(py)?.getattr("start")?.call1((number,))?;
    Ok(if failure.is_none() {
        Ok(())
    } else {
        Err(PyErr::from_value(failure))
    })
}

/// The Python half of this module.
pub(crate) fn python(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static HOST: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = HOST.get_or_try_init(py, || {
        PyResult::Ok(py.import("clika_runtime._host")?.unbind())
    })?;
    Ok(module.bind(py))
}

/// The iterator that an `await` of `object` runs.
pub(crate) fn awaiting<'py>(
    py: Python<'py>,
    kind: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static AWAITING: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = AWAITING.get_or_try_init(py, || {
        PyResult::Ok(py.import("clika_runtime._awaiting")?.unbind())
    })?;
    module
        .bind(py)
        .getattr(kind)?
        .call1((object,))?
        .call_method0("__await__")
}

/// Makes sure that the lane has a thread.
#[inline]
pub(crate) fn ensure(py: Python<'_>) -> PyResult<()> {
    if STARTED.load(Ordering::Relaxed) == foreign::generation() {
        return Ok(());
    }
    begin(py)
}

/// The process, by its generation, in which the lane has a thread.
static STARTED: AtomicU64 = AtomicU64::new(u64::MAX);

#[cold]
fn begin(py: Python<'_>) -> PyResult<()> {
    let executor = foreign::executor().map_err(|error| raised(py, &error))?;
    recruiter::first(py, executor)?;
    STARTED.store(foreign::generation(), Ordering::Relaxed);
    Ok(())
}

/// Queues a call that belongs to no stream.
pub(crate) fn post(py: Python<'_>, call: Bound<'_, PyTuple>) -> PyResult<()> {
    ensure(py)?;
    let executor = foreign::executor().map_err(|error| raised(py, &error))?;
    let posted = executor.push_loose(Call::Notice(call.unbind()));
    posted.map_err(|refused| raised(py, &foreign::refused(refused)))
}

/// A call that any thread may queue later.
pub(crate) struct Posted(Py<PyTuple>);

impl Posted {
    pub(crate) fn new(call: Bound<'_, PyTuple>) -> Self {
        Self(call.unbind())
    }

    pub(crate) fn post(self) {
        if let Some(executor) = foreign::started() {
            // Refused at shutdown, when nobody waits for it any more.
            let _ = executor.push_loose(Call::Notice(self.0));
        }
    }
}

/// Sends failures that nobody acknowledged to a host thread, which reports them.
pub(crate) fn reporter() -> Reporter {
    Box::new(|failure| {
        if let Some(executor) = foreign::started() {
            // Refused at shutdown, where the exit hook reports what is left.
            let _ = executor.push_loose(Call::Report(failure.clone()));
        }
    })
}

/// Reports a failure through `sys.unraisablehook`.
pub(crate) fn report(py: Python<'_>, failure: &Arc<Failure>) {
    let about = format!("stream '{}'", failure.origin.strand).into_pyobject(py);
    let about = about.ok().map(Bound::into_any);
    failed(py, failure).write_unraisable(py, about.as_ref());
}

/// One thread of the host lane, for that thread only.
#[pyclass(module = "clika_runtime._core")]
pub(crate) struct HostThread(Own<Hand>);

/// What a host thread works with.
struct Hand {
    thread: ForeignThread,
    lane: &'static Lane,
    executor: &'static Executor,
    /// The system's number of the thread.
    number: u32,
    /// The submitted function that is being run; none while a callback is.
    current: Option<Py<FutureBase>>,
    /// The last operation's outcome, which is complete once the thread has detached.
    unfinished: Option<Result<(), Fault>>,
    attached: Instant,
    calls: u32,
}

/// The thread's own half, for a stretch in which it is detached.
struct Here<'a>(&'a mut ForeignThread);

// SAFETY: `Python::detach` runs its closure on the calling thread.
#[allow(unsafe_code, reason = "see above")]
unsafe impl Send for Here<'_> {}

impl Hand {
    /// One attachment lasts about this long while others may want the interpreter lock.
    const ATTACHMENT: Duration = Duration::from_millis(1);
    /// Calls between two looks at the clock.
    const CALLS: u32 = 16;

    fn is_inherited(&self) -> bool {
        self.executor.is_inherited()
    }

    /// Ends the current operation.
    fn end(&mut self, py: Python<'_>, outcome: Outcome<'_>) {
        foreign::leave_function(0);
        let Some(future) = self.current.take() else {
            self.thread.finish(Ok(()));
            return;
        };
        let future = future.into_bound(py);
        let resolved = FutureBase::resolve(&future, outcome);
        if let Some(fault) = resolved.told {
            self.thread.tell(fault);
        }
        let outcome = resolved.fault.map_or(Ok(()), Err);
        if resolved.is_watched {
            self.thread.finish(outcome);
            let posted = FutureBase::notice(&future).and_then(|notice| post(py, notice));
            if let Err(error) = posted {
                error.write_unraisable(py, Some(future.as_any()));
            }
        } else if self.thread.has_more() {
            self.thread.finish(outcome);
        } else {
            self.unfinished = Some(outcome);
        }
    }

    /// Lets others have the interpreter lock, if this thread has had it for long.
    fn give_way(&mut self, py: Python<'_>) {
        self.calls += 1;
        if self.calls.is_multiple_of(Self::CALLS) && self.attached.elapsed() > Self::ATTACHMENT {
            detached(py, std::thread::yield_now);
            self.attached = Instant::now();
        }
    }

    /// Completes the last operation, and waits until there may be work, both detached: whoever waits
    /// for that operation can attach. `false`: the thread is to leave.
    fn rest(&mut self, py: Python<'_>) -> bool {
        let unfinished = self.unfinished.take();
        let (here, lane) = (Here(&mut self.thread), self.lane);
        let (stays, turn) = detached(py, move || {
            let here = here;
            if let Some(outcome) = unfinished {
                here.0.finish(outcome);
            }
            let stays = here.0.rest();
            let_submitter_wait();
            (stays, Attaching::next(lane))
        });
        drop(turn);
        self.attached = Instant::now();
        stays
    }
}

/// The right to attach, which one thread of the lane has at a time.
struct Attaching<'a>(#[expect(dead_code, reason = "held")] std::sync::MutexGuard<'a, ()>);

// SAFETY: the guard is made and dropped on the same thread: see `Here`.
#[allow(unsafe_code, reason = "see above")]
unsafe impl Send for Attaching<'_> {}

impl<'a> Attaching<'a> {
    fn next(lane: &'a Lane) -> Self {
        Self(
            lane.attaching
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

/// Who submits holds the interpreter lock, and most often waits next and lets go of it. A thread
/// that asked for the lock right away would fall asleep over it.
fn let_submitter_wait() {
    const LOOKS: u32 = 200;
    for _ in 0..LOOKS {
        if gate::somebody_else_waits() {
            return;
        }
        std::hint::spin_loop();
    }
}

#[pymethods]
impl HostThread {
    /// The calling thread, which has this number, joins the lane, which counted it before.
    #[new]
    fn new(py: Python<'_>, number: u32) -> PyResult<Self> {
        let executor = foreign::executor().map_err(|error| raised(py, &error))?;
        let lane: &Lane = foreign::state().map_err(|error| raised(py, &error))?;
        foreign::trace::name_thread(&format!("clika-host {number}"));
        lane.roll.add(number);
        Ok(Self(Own::new(Hand {
            thread: ForeignThread::arrive(executor),
            lane,
            executor,
            number,
            current: None,
            unfinished: None,
            attached: Instant::now(),
            calls: 0,
        })))
    }

    /// The next call, as a tuple of a function and its arguments; None: leave.
    fn take(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        Ok(self.0.get()?.take(py))
    }

    /// The call that was taken returned this.
    fn done(&mut self, py: Python<'_>, value: Bound<'_, PyAny>) -> PyResult<()> {
        self.0.get()?.done(py, value);
        Ok(())
    }

    /// The call that was taken raised this.
    fn failed(&mut self, py: Python<'_>, exception: Bound<'_, PyBaseException>) -> PyResult<()> {
        self.0.get()?.failed(py, exception);
        Ok(())
    }
}

impl Hand {
    fn take(&mut self, py: Python<'_>) -> Option<Py<PyTuple>> {
        if self.is_inherited() {
            return None;
        }
        self.give_way(py);
        loop {
            if self.unfinished.is_some() && !self.rest(py) {
                return None;
            }
            match self.thread.next::<Call>() {
                Some(next) => {
                    if let Some(call) = self.prepare(py, next) {
                        return Some(call);
                    }
                }
                None if self.rest(py) => {}
                None => return None,
            }
        }
    }

    fn done(&mut self, py: Python<'_>, value: Bound<'_, PyAny>) {
        if !self.is_inherited() {
            self.end(py, Outcome::Value(value));
        }
    }

    fn failed(&mut self, py: Python<'_>, exception: Bound<'_, PyBaseException>) {
        if self.is_inherited() {
            return;
        }
        let _section = Section::begin(py);
        if let Err(error) = strip_own_frame(&exception) {
            error.write_unraisable(py, None);
        }
        if self.current.is_some() {
            self.end(py, Outcome::Raised(exception));
        } else {
            self.end(py, Outcome::Value(py.None().into_bound(py)));
            PyErr::from_value(exception.into_any()).write_unraisable(py, None);
        }
    }

    /// The call to make for an operation; `None` if that ended it.
    fn prepare(&mut self, py: Python<'_>, next: Next<Call>) -> Option<Py<PyTuple>> {
        match next {
            Next::Run(Call::Work(future)) => {
                let Some(call) = future.get().begin(py) else {
                    FutureBase::release(future.bind(py));
                    self.thread.finish(Ok(()));
                    return None;
                };
                let (function, begun) = (future.get().function(), future.get().begin_uses(py));
                self.current = Some(future);
                if let Err(failure) = begun {
                    let _section = Section::begin(py);
                    self.end(py, Outcome::Refused(&failure));
                    return None;
                }
                foreign::enter_function(function);
                Some(call)
            }
            Next::Skip(Call::Work(future), failure) => {
                let _section = Section::begin(py);
                self.current = Some(future);
                self.end(py, Outcome::Skipped(&failure));
                None
            }
            Next::Run(Call::Notice(call)) | Next::Skip(Call::Notice(call), _) => Some(call),
            Next::Run(Call::Report(failure)) | Next::Skip(Call::Report(failure), _) => {
                let _section = Section::begin(py);
                report(py, &failure);
                drop(failure);
                self.thread.finish(Ok(()));
                None
            }
            Next::Run(Call::Log) | Next::Skip(Call::Log, _) => {
                let call = logging::delivery(py);
                call.map_err(|error| {
                    error.write_unraisable(py, None);
                    self.thread.finish(Ok(()));
                })
                .map(Bound::unbind)
                .ok()
            }
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if !self.is_inherited() {
            self.lane.roll.remove(self.number);
        }
    }
}

/// Takes the loop's own frame off the traceback.
pub(crate) fn strip_own_frame(exception: &Bound<'_, PyBaseException>) -> PyResult<()> {
    let py = exception.py();
    let name = intern!(py, "__traceback__");
    let traceback = exception.getattr(name)?;
    if !traceback.is_none() {
        exception.setattr(name, traceback.getattr(intern!(py, "tb_next"))?)?;
    }
    Ok(())
}

/// A dictionary's entries as keyword arguments of a call.
pub(crate) fn with_keywords<'py>(
    call: Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let Some(keywords) = keywords.filter(|keywords| !keywords.is_empty()) else {
        return Ok(call);
    };
    let py = call.py();
    let partial = py
        .import("functools")?
        .getattr("partial")?
        .call(call, Some(keywords))?;
    PyTuple::new(py, [partial])
}
