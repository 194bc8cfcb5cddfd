//! Futures: what a submitted Python function returned or raised.
//!
//! `Future` is a subclass of `concurrent.futures.Future`, since asyncio and others insist on that.
//! It is made of two bases: `FutureBase`, which is this file, and the standard class, of which only
//! the name is used. Locks and lists that the standard functions ask for are made when they do.
//!
//! A future also carries its operation: the call, and the line that submitted it. So submitting
//! costs one object, and the queue holds one pointer.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clika_runtime::foreign::trace::Description;
use clika_runtime::foreign::{self, Arguments, Failure, Fault, Reason, Site};
use pyo3::exceptions::{PyBaseException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::exceptions::{failed, skipped};
use crate::failure::{self, annotate, exception_of, fault, let_go_of_locals};
use crate::function::Uses;
use crate::guarded::Guarded;
use crate::host;
use crate::site;
use crate::stream::Stream;
use crate::wait::{deadline, reach_unless, refuse_deadlock};

/// What a future is made of; the token without which none is.
pub(crate) struct Parts {
    pub(crate) stream: Py<Stream>,
    /// The function and its arguments, as one tuple.
    pub(crate) call: Py<PyTuple>,
    pub(crate) site: Site,
    /// A failure stays with the future and does not fail the stream.
    pub(crate) isolated: bool,
    /// The buffers among the arguments.
    pub(crate) buffers: Option<Arguments>,
}

/// The base of `Future` that does the work.
#[pyclass(frozen, subclass, weakref, module = "clika_runtime._core")]
pub(crate) struct FutureBase {
    stream: Py<Stream>,
    site: Site,
    isolated: bool,
    /// Its number on the stream's timeline, once it is submitted.
    n: AtomicU64,
    /// The number to wait for: none for work inside the default stream's own work, which is done
    /// when the call returns.
    waits_for: AtomicU64,
    /// Its number among the functions, by which it knows the writes that were submitted before it.
    function: u64,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    call: Option<Py<PyTuple>>,
    uses: Option<Box<Uses>>,
    value: Option<Py<PyAny>>,
    exception: Option<Py<PyBaseException>>,
    extra: Option<Box<Extra>>,
}

/// What most futures never need.
#[derive(Default)]
struct Extra {
    /// The name of the function, once the call is gone or a trace wants it.
    name: Option<String>,
    /// The sizes of its buffers, if a trace wants them.
    bytes: u64,
    callbacks: Vec<Py<PyAny>>,
    condition: Option<Py<PyAny>>,
    waiters: Option<Py<PyList>>,
}

impl State {
    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    fn show(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.call)?;
        visit.call(&self.value)?;
        visit.call(&self.exception)?;
        let Some(extra) = &self.extra else {
            return Ok(());
        };
        visit.call(&extra.condition)?;
        visit.call(&extra.waiters)?;
        let mut callbacks = extra.callbacks.iter();
        callbacks.try_for_each(|callback| visit.call(callback))
    }

    /// Whether somebody is to be told when it is done.
    fn is_watched(&self) -> bool {
        self.extra
            .as_ref()
            .is_some_and(|extra| !extra.callbacks.is_empty() || extra.condition.is_some())
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Pending,
    Running,
    Cancelled,
    Finished,
}

/// What is left to do for an operation that was resolved.
pub(crate) struct Resolved {
    /// What the stream is to fail with.
    pub(crate) fault: Option<Fault>,
    /// What a trace, if there is one, is to be told beside that: why the function failed or did not run.
    pub(crate) told: Option<Fault>,
    /// Whether somebody is to be told.
    pub(crate) is_watched: bool,
}

/// How an operation ended.
pub(crate) enum Outcome<'py> {
    Value(Bound<'py, PyAny>),
    Raised(Bound<'py, PyBaseException>),
    Skipped(&'py Arc<Failure>),
    /// It could not be at its buffers.
    Refused(&'py Arc<Failure>),
}

static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
thread_local! {
    /// The parts of the future that this thread is making.
    static PARTS: Cell<Option<Parts>> = const { Cell::new(None) };
}

/// The class that users see.
pub(crate) fn class(py: Python<'_>) -> PyResult<&'static Py<PyType>> {
    FUTURE.get_or_try_init(py, || {
        let standard = py.import("concurrent.futures")?.getattr("Future")?;
        let namespace = PyDict::new(py);
        namespace.set_item("__module__", crate::MODULE)?;
        namespace.set_item("__doc__", FUTURE_DOC)?;
        // The standard initialiser would make a lock and two lists per future.
        let object = py.import("builtins")?.getattr("object")?;
        namespace.set_item("__init__", object.getattr("__init__")?)?;
        namespace.set_item("__slots__", ())?;
        let bases = (py.get_type::<FutureBase>(), standard);
        let class = py
            .get_type::<PyType>()
            .call1(("Future", bases, namespace))?;
        Ok(class.cast_into::<PyType>()?.unbind())
    })
}

const FUTURE_DOC: &str = "\
What a submitted function returns or raises, once it has run.

A `concurrent.futures.Future`, so `concurrent.futures.wait`, `as_completed` and
`asyncio.wrap_future` take it; it can also be awaited. Taking the result or the
exception of work that failed acknowledges that failure for its stream.

Examples
--------
>>> from clika_runtime import Device, Stream
>>> stream = Stream.create(Device.parse(\"cpu\"))
>>> stream.submit(pow, 2, 10).result()
1024
";

/// A new future, not yet submitted.
pub(crate) fn make<'py>(py: Python<'py>, parts: Parts) -> PyResult<Bound<'py, FutureBase>> {
    collector::forget(parts.call.bind(py));
    PARTS.set(Some(parts));
    let future = class(py)?.bind(py).call0()?.cast_into::<FutureBase>()?;
    collector::forget(&future);
    if is_traced() {
        future.get().note_for_trace(py);
    }
    Ok(future)
}

fn is_traced() -> bool {
    foreign::started().is_some_and(|executor| executor.log().is_on())
}

impl FutureBase {
    /// Notes the number that the operation got.
    pub(crate) fn submitted(&self, n: u64) {
        self.n.store(n, Ordering::Relaxed);
        self.waits_for.store(n, Ordering::Relaxed);
    }

    /// Notes that it is part of operation `n`, and done when its call returns.
    pub(crate) fn submitted_within(&self, n: u64) {
        self.n.store(n, Ordering::Relaxed);
    }

    /// Finds out its name, which asks the function, where no lock is held, and its bytes.
    fn note_for_trace(&self, py: Python<'_>) {
        let name = self.name(py);
        let bytes = self.with_buffers(py, Arguments::bytes);
        self.state.with(py, |state| {
            let extra = state.extra();
            (extra.name, extra.bytes) = (Some(name), bytes);
        });
    }

    /// What a trace tells of it.
    pub(crate) fn describe_to_trace(&self, py: Python<'_>) -> Description {
        let (name, bytes) = self.state.with(py, |state| match &state.extra {
            Some(extra) => (extra.name.clone(), extra.bytes),
            None => (None, 0),
        });
        Description {
            name: name.map_or("work".into(), Into::into),
            category: "python",
            site: self.site.clone(),
            bytes,
        }
    }

    /// Begins the operation: its call, or `None` if it was cancelled.
    pub(crate) fn begin(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state.with(py, |state| {
            if state.phase != Phase::Pending {
                return None;
            }
            state.phase = Phase::Running;
            state.call.as_ref().map(|call| call.clone_ref(py))
        })
    }

    /// Ends the operation: what it captured is let go, and its future has its result.
    pub(crate) fn resolve(slf: &Bound<'_, Self>, outcome: Outcome<'_>) -> Resolved {
        let (py, this) = (slf.py(), slf.get());
        let told = if is_traced() {
            this.told(&outcome)
        } else {
            None
        };
        let (value, exception, fault) = match outcome {
            Outcome::Value(value) => (Some(value.unbind()), None, None),
            Outcome::Raised(exception) => {
                // An exception that refuses the note is raised without it.
                let _ = annotate(&exception, &this.describe(py));
                if this.state.with(py, |state| state.uses.is_some()) {
                    let_go_of_locals(&exception);
                }
                let fault = (!this.isolated).then(|| fault(&exception, &this.site));
                (None, Some(exception.unbind()), fault)
            }
            Outcome::Skipped(failure) => {
                this.skip_uses(py, failure);
                let error = skipped(py, &this.describe(py), failure);
                (None, Some(error.into_value(py)), None)
            }
            Outcome::Refused(failure) => {
                let error = if this.is_of(failure) {
                    failed(py, failure)
                } else {
                    skipped(py, &this.describe(py), failure)
                };
                let fault = (!this.isolated).then(|| Fault::passed(failure.clone()));
                (None, Some(error.into_value(py)), fault)
            }
        };
        let fault = this.end_uses(py, exception.as_ref(), fault);
        let (captured, is_watched) = this.state.with(py, |state| {
            if state.phase != Phase::Cancelled {
                state.phase = Phase::Finished;
                state.value = value;
                state.exception = exception;
            }
            (state.call.take(), state.is_watched())
        });
        drop(captured);
        collector::remember(slf);
        Resolved {
            fault,
            told,
            is_watched,
        }
    }

    /// What the stream's own failure does not tell a trace.
    fn told(&self, outcome: &Outcome<'_>) -> Option<Fault> {
        match outcome {
            Outcome::Raised(exception) if self.isolated => {
                Some(failure::fault_in_words(exception, &self.site))
            }
            Outcome::Refused(failure) => Some(Fault::passed((*failure).clone())),
            _ => None,
        }
    }

    /// The number of its operation.
    pub(crate) fn number(&self) -> u64 {
        self.n.load(Ordering::Relaxed)
    }

    /// The number of the function.
    pub(crate) fn function(&self) -> u64 {
        self.function
    }

    /// Begins to use the buffers among the arguments; why that cannot be.
    pub(crate) fn begin_uses(&self, py: Python<'_>) -> Result<(), Arc<Failure>> {
        let Some(uses) = self.take_uses(py) else {
            return Ok(());
        };
        let Uses::Submitted(arguments) = *uses else {
            unreachable!("a function begins once")
        };
        let (strand, n) = (foreign::strand(&self.stream.get().0), self.number());
        let begun = arguments
            .begin(strand, n, self.site.clone())
            .map_err(|fault| strand.failure_of(n, fault))?;
        let begun = Some(Box::new(Uses::Begun(begun)));
        self.state.with(py, |state| state.uses = begun);
        Ok(())
    }

    /// Ends the use of the buffers: what the function failed with is theirs too.
    fn end_uses(
        &self,
        py: Python<'_>,
        exception: Option<&Py<PyBaseException>>,
        fault: Option<Fault>,
    ) -> Option<Fault> {
        let Some(Uses::Begun(using)) = self.take_uses(py).map(|uses| *uses) else {
            return fault;
        };
        let own = || exception.map(|exception| failure::fault(exception.bind(py), &self.site));
        let outcome = fault.or_else(own).map_or(Ok(()), Err);
        let reason = || match exception {
            Some(exception) => failure::reason(exception.bind(py)),
            None => Reason::ShutDown,
        };
        let fault = using.end(outcome, reason).err()?;
        if !self.isolated {
            return Some(fault);
        }
        let strand = foreign::strand(&self.stream.get().0);
        let _told = strand.failure_of(self.number(), fault);
        None
    }

    fn skip_uses(&self, py: Python<'_>, why: &Arc<Failure>) {
        if let Some(Uses::Submitted(arguments)) = self.take_uses(py).map(|uses| *uses) {
            arguments.skip(why);
        }
    }

    fn take_uses(&self, py: Python<'_>) -> Option<Box<Uses>> {
        self.state.with(py, |state| state.uses.take())
    }

    /// Calls `f` with the buffers of a function that has not begun, of which there may be none.
    pub(crate) fn with_buffers<R>(&self, py: Python<'_>, f: impl FnOnce(&Arguments) -> R) -> R {
        let Some(uses) = self.take_uses(py) else {
            return f(&Arguments::new([]));
        };
        let Uses::Submitted(arguments) = &*uses else {
            unreachable!("it has not begun")
        };
        let result = f(arguments);
        self.state.with(py, |state| state.uses = Some(uses));
        result
    }

    /// Whether a failure is this operation's own.
    fn is_of(&self, failure: &Failure) -> bool {
        let strand = foreign::strand(&self.stream.get().0);
        (failure.origin.strand_id, failure.origin.operation) == (strand.id(), self.number())
    }

    /// The queue lets go of an operation that was cancelled.
    pub(crate) fn release(slf: &Bound<'_, Self>) {
        collector::remember(slf);
    }

    /// The call that tells them: for a thread of the host lane.
    pub(crate) fn notice<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let (callbacks, condition) = slf.get().state.with(py, |state| {
            let extra = state.extra();
            let condition = extra
                .condition
                .as_ref()
                .map(|condition| condition.clone_ref(py));
            (std::mem::take(&mut extra.callbacks), condition)
        });
        let notify = host::python(py)?.getattr(intern!(py, "notify"))?;
        (notify, slf, callbacks, condition).into_pyobject(py)
    }

    /// "'work' of stream 'decode', submitted at file:line"
    fn describe(&self, py: Python<'_>) -> String {
        let stream = self.stream.get().0.name();
        format!(
            "{} of stream '{stream}', submitted at {}",
            self.name(py),
            site::text(&self.site)
        )
    }

    /// The qualified name of the function.
    fn name(&self, py: Python<'_>) -> String {
        let (call, known) = self.state.with(py, |state| {
            let known = state.extra.as_ref().and_then(|extra| extra.name.clone());
            (state.call.as_ref().map(|call| call.clone_ref(py)), known)
        });
        let name = call
            .and_then(|call| qualified_name(call.bind(py)).ok())
            .or(known);
        name.unwrap_or_else(|| "work".to_owned())
    }

    #[inline]
    fn phase(&self, py: Python<'_>) -> Phase {
        self.state.with(py, |state| state.phase)
    }

    /// Blocks until the operation is complete.
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        let strand = foreign::strand(&self.stream.get().0);
        let n = self.waits_for.load(Ordering::Relaxed);
        match self.phase(py) {
            Phase::Cancelled => return Ok(()),
            Phase::Finished if strand.has_reached(n) => return Ok(()),
            _ => {}
        }
        let point = strand.point().at(n);
        reach_unless(py, &point, deadline, || self.phase(py) == Phase::Cancelled)
    }

    /// What it came to, once it is over. An exception is the operation's own, which is acknowledged
    /// by this, or says why it was skipped.
    fn outcome(&self, py: Python<'_>) -> PyResult<Result<Py<PyAny>, Py<PyBaseException>>> {
        let (phase, value, exception) = self.state.with(py, |state| {
            let value = state.value.as_ref().map(|value| value.clone_ref(py));
            let exception = state
                .exception
                .as_ref()
                .map(|exception| exception.clone_ref(py));
            (state.phase, value, exception)
        });
        if let Some(exception) = exception {
            self.acknowledge(&exception);
            return Ok(Err(exception));
        }
        match (phase, value) {
            (Phase::Cancelled, _) => Err(cancelled_by_user(py)),
            (_, Some(value)) => Ok(Ok(value)),
            // Dropped at shutdown, by a thread that could not touch Python objects any more.
            (_, None) => Err(self.lost(py)),
        }
    }

    fn lost(&self, py: Python<'_>) -> PyErr {
        match foreign::strand(&self.stream.get().0).failure() {
            Some(failure) => failed(py, &failure),
            None => cancelled_by_user(py),
        }
    }

    /// Acknowledges the stream's failure, if it is this operation's own.
    pub(crate) fn acknowledge(&self, exception: &Py<PyBaseException>) {
        let strand = foreign::strand(&self.stream.get().0);
        strand.acknowledge_if(|failure| {
            self.is_of(failure) && exception_of(failure).is_none_or(|own| own.is(exception))
        });
    }
}

fn qualified_name(call: &Bound<'_, PyTuple>) -> PyResult<String> {
    let function = call.get_item(0)?;
    let name = match function.getattr_opt("__qualname__")? {
        Some(name) => name,
        None => match function.getattr_opt("func")? {
            // What `functools.partial` wraps.
            Some(inner) => inner.getattr("__qualname__")?,
            None => function.get_type().getattr("__qualname__")?,
        },
    };
    name.extract()
}

/// What the standard class raises for a future that its user cancelled.
fn cancelled_by_user(py: Python<'_>) -> PyErr {
    match py
        .import("concurrent.futures")
        .and_then(|module| module.getattr("CancelledError"))
    {
        Ok(class) => match class.call0() {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        },
        Err(error) => error,
    }
}

#[pymethods]
impl FutureBase {
    #[new]
    fn new() -> PyResult<Self> {
        let Some(Parts {
            stream,
            call,
            site,
            isolated,
            buffers,
        }) = PARTS.take()
        else {
            return Err(PyTypeError::new_err(
                "a Future is not constructed: it is what Stream.submit returns",
            ));
        };
        Ok(Self {
            stream,
            site,
            isolated,
            n: AtomicU64::new(0),
            waits_for: AtomicU64::new(0),
            function: foreign::number_function(),
            state: Guarded::new(State {
                call: Some(call),
                uses: buffers.map(|buffers| Box::new(Uses::Submitted(buffers))),
                ..State::default()
            }),
        })
    }

    /// The stream that it was submitted to.
    #[getter]
    pub(crate) fn stream(&self, py: Python<'_>) -> Py<Stream> {
        self.stream.clone_ref(py)
    }

    /// Blocks until the function has run, and returns what it returned.
    ///
    /// Parameters
    /// ----------
    /// timeout : float, optional
    ///     Seconds to wait at most. None waits for ever, 0 polls.
    ///
    /// Raises
    /// ------
    /// TimeoutError
    ///     If it has not run by then.
    /// CancelledError
    ///     If it was skipped because earlier work failed; ``__cause__`` is that failure.
    /// concurrent.futures.CancelledError
    ///     If it was cancelled through this future.
    /// DeadlockError
    ///     If this is called inside work that would wait for itself.
    /// BaseException
    ///     What the function raised. The failure is acknowledged by that.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.wait(py, timeout)?;
        self.outcome(py)?
            .map_err(|exception| PyErr::from_value(exception.into_bound(py).into_any()))
    }

    /// Blocks until the function has run, and returns what it raised, or None.
    ///
    /// Parameters
    /// ----------
    /// timeout : float, optional
    ///     Seconds to wait at most. None waits for ever, 0 polls.
    ///
    /// Raises
    /// ------
    /// TimeoutError
    ///     If it has not run by then.
    /// concurrent.futures.CancelledError
    ///     If it was cancelled through this future.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> stream.submit(int, "seven").exception()
    /// ValueError("invalid literal for int() with base 10: 'seven'")
    #[pyo3(signature = (timeout=None))]
    fn exception(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyBaseException>>> {
        self.wait(py, timeout)?;
        Ok(self.outcome(py)?.err())
    }

    /// Whether the function has run, was skipped, or was cancelled.
    fn done(&self, py: Python<'_>) -> bool {
        matches!(self.phase(py), Phase::Finished | Phase::Cancelled)
    }

    /// Whether the function is running now.
    fn running(&self, py: Python<'_>) -> bool {
        self.phase(py) == Phase::Running
    }

    /// Whether `cancel` came in time.
    fn cancelled(&self, py: Python<'_>) -> bool {
        self.phase(py) == Phase::Cancelled
    }

    /// Skips the function if it has not started, without failing the stream.
    ///
    /// Returns
    /// -------
    /// bool
    ///     Whether it is cancelled.
    ///
    /// Examples
    /// --------
    /// >>> import threading
    /// >>> stream, gate = Stream.create(Device.parse("cpu")), threading.Event()
    /// >>> first, second = stream.submit(gate.wait), stream.submit(print, "never printed")
    /// >>> second.cancel()
    /// True
    /// >>> second.cancelled(), second.done(), second.running()
    /// (True, True, False)
    /// >>> gate.set()
    /// >>> first.result()
    /// True
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        if this.phase(py) != Phase::Pending {
            return Ok(this.phase(py) == Phase::Cancelled);
        }
        let name = this.name(py);
        // Finding the name may have run Python code: look again.
        let cancelled = this.state.with(py, |state| {
            (state.phase == Phase::Pending).then(|| {
                state.phase = Phase::Cancelled;
                let is_watched = state.is_watched();
                state.extra().name = Some(name);
                ((state.call.take(), state.uses.take()), is_watched)
            })
        });
        let Some((captured, is_watched)) = cancelled else {
            return Ok(this.phase(py) == Phase::Cancelled);
        };
        drop(captured);
        if is_watched {
            host::post(py, Self::notice(slf)?)?;
        }
        Ok(true)
    }

    /// Calls ``fn(future)`` once the function is done: on the host lane, or here and now if it is
    /// done already. What the callback raises is logged.
    ///
    /// Parameters
    /// ----------
    /// fn : callable
    ///     Called with this future. It may block and may wait for the stream.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> total = stream.submit(sum, [1, 2, 3])
    /// >>> stream.synchronize()
    /// >>> total.add_done_callback(lambda total: print(total.result()))
    /// 6
    fn add_done_callback(slf: &Bound<'_, Self>, r#fn: Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let waits = slf.get().state.with(py, |state| {
            let waits = matches!(state.phase, Phase::Pending | Phase::Running);
            if waits {
                state.extra().callbacks.push(r#fn.clone().unbind());
            }
            waits
        });
        if waits {
            return Ok(());
        }
        host::python(py)?
            .getattr("notify")?
            .call1((slf, (r#fn,), py.None()))?;
        Ok(())
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        host::awaiting(slf.py(), "future", slf.as_any())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match self.phase(py) {
            Phase::Pending => "pending",
            Phase::Running => "running",
            Phase::Cancelled => "cancelled",
            Phase::Finished => "finished",
        };
        format!("<Future of {}: {state}>", self.describe(py))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Future cannot be pickled: send its result, or submit in the other process",
        ))
    }

    /// For `await`: refuses one that could never end.
    fn _refuse_deadlock(&self, py: Python<'_>) -> PyResult<()> {
        let n = self.waits_for.load(Ordering::Relaxed);
        let point = foreign::strand(&self.stream.get().0).point().at(n);
        refuse_deadlock(py, &point)
    }

    /// For `_host.notify`: looking acknowledges nothing.
    fn _has_exception(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.exception.is_some())
    }

    /// For the standard functions, which read it.
    #[getter]
    fn _state(&self, py: Python<'_>) -> &'static str {
        match self.phase(py) {
            Phase::Pending => "PENDING",
            Phase::Running => "RUNNING",
            Phase::Cancelled => "CANCELLED_AND_NOTIFIED",
            Phase::Finished => "FINISHED",
        }
    }

    /// For the standard functions, which lock it.
    #[getter]
    fn _condition(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let fresh = py
            .import("threading")?
            .getattr("Condition")?
            .call0()?
            .unbind();
        Ok(self.state.with(py, |state| {
            state
                .extra()
                .condition
                .get_or_insert_with(|| fresh.clone_ref(py))
                .clone_ref(py)
        }))
    }

    /// For the standard functions, which add to it.
    #[getter]
    fn _waiters(&self, py: Python<'_>) -> Py<PyList> {
        let fresh = PyList::empty(py).unbind();
        self.state.with(py, |state| {
            state
                .extra()
                .waiters
                .get_or_insert_with(|| fresh.clone_ref(py))
                .clone_ref(py)
        })
    }

    /// Streams set what their work returned; nobody else does.
    #[pyo3(signature = (*_args))]
    fn set_result(&self, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "the stream sets the result of its work",
        ))
    }

    /// Streams set what their work raised; nobody else does.
    #[pyo3(signature = (*_args))]
    fn set_exception(&self, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "the stream sets the exception of its work",
        ))
    }

    /// Streams start their work; nobody else does.
    fn set_running_or_notify_cancel(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("the stream starts its work"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.stream)?;
        collector::show(&self.state, &visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        let cleared = self.state.with(py, |state| {
            let phase = state.phase;
            std::mem::replace(
                state,
                State {
                    phase,
                    ..State::default()
                },
            )
        });
        drop(cleared);
    }
}

/// Keeping futures from the cycle collector while the queue holds them: it could not free them, and
/// to look at every pending one time and again costs more than all else.
mod collector {
    #![allow(
        unsafe_code,
        reason = "calls into the interpreter; each block states its reason"
    )]

    use pyo3::ffi;
    use pyo3::prelude::*;
    use pyo3::{PyTraverseError, PyVisit};

    use super::{FutureBase, State};
    use crate::guarded::Guarded;

    /// Shows the collector what a future holds.
    pub(super) fn show(state: &Guarded<State>, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: who has a visitor is called by the collector, attached; visiting runs no Python.
        let shown = unsafe { state.visit(|state| state.show(visit)) };
        shown.unwrap_or(Ok(()))
    }

    /// A pending future, which its operation in the queue owns, or the call, which nobody else sees.
    pub(super) fn forget<T>(object: &Bound<'_, T>) {
        // SAFETY: the object is alive and of a collected type; untracking twice is allowed.
        unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
    }

    /// One that the queue lets go of: it may be part of a cycle.
    pub(super) fn remember(future: &Bound<'_, FutureBase>) {
        // SAFETY: the object is alive, of a collected type, and complete. Only this thread can
        // track it: it is attached.
        unsafe {
            if ffi::PyObject_GC_IsTracked(future.as_ptr()) == 0 {
                ffi::PyObject_GC_Track(future.as_ptr().cast());
            }
        }
    }
}
