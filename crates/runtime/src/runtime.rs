//! The one runtime of this process, made at its first use.
//!
//! A forked child gets its own: slots form a list, one per generation of the process, and nobody
//! touches the slot of another generation. A slot's lock can therefore not have been inherited in
//! a locked state, since the only threads that ever lock it belong to this process.
#![allow(
    unsafe_code,
    reason = "slots are leaked, so that they outlive every thread"
)]

use std::any::Any;
use std::io::{self, Write};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clika_executor::{Config, Executor, Recruiter, Refused, Reporter, generation};

use crate::device::Device;
use crate::error::Error;
use crate::pool::Pool;
use crate::roster::Roster;
use crate::settings::Settings;
use crate::stream::{Handle, Stream};
use crate::trace::{self, Tracer};
use crate::wait;

pub(crate) struct Runtime {
    pub(crate) executor: Executor,
    pub(crate) settings: Settings,
    /// The memory of the CPU.
    pub(crate) pool: Arc<Pool>,
    /// The default stream of the CPU.
    default_stream: OnceLock<Stream>,
    /// The streams that somebody holds.
    pub(crate) roster: Roster<Handle>,
    /// What is told of all this.
    pub(crate) tracer: Tracer,
    /// What a binding keeps for as long as the runtime.
    pub(crate) binding: OnceLock<Box<dyn Any + Send + Sync>>,
}

struct Slot {
    generation: u64,
    settings: OnceLock<Result<Settings, Error>>,
    runtime: OnceLock<Runtime>,
}

static CURRENT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// What a binding of another language does in its own way.
#[derive(Clone, Copy)]
pub struct Binding {
    /// Makes who is told of failures that nobody acknowledged.
    pub reporter: fn() -> Reporter,
    /// Asked for threads of that language.
    pub recruiter: Recruiter,
}

static BINDING: OnceLock<Binding> = OnceLock::new();

/// The runtime of this process.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    let slot = slot();
    match slot.runtime.get() {
        Some(runtime) => Ok(runtime),
        None => slot.start(),
    }
}

/// The runtime of this process, if it has been used.
pub(crate) fn started() -> Option<&'static Runtime> {
    slot().runtime.get()
}

/// Installs a binding. Only the first one counts, and only before the runtime is first used.
pub(crate) fn bind(binding: Binding) {
    let _ = BINDING.set(binding);
}

fn slot() -> &'static Slot {
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: slots are leaked boxes, so a non-null pointer stays valid.
    match unsafe { current.as_ref() } {
        Some(slot) if slot.generation == generation() => slot,
        _ => next_slot(current),
    }
}

#[cold]
fn next_slot(current: *mut Slot) -> &'static Slot {
    let fresh = Box::into_raw(Box::new(Slot {
        generation: generation(),
        settings: OnceLock::new(),
        runtime: OnceLock::new(),
    }));
    match CURRENT.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: `fresh` is a valid box that nobody frees from here on.
        Ok(_) => unsafe { &*fresh },
        Err(_) => {
            // SAFETY: `fresh` was not published, so this is its only owner.
            drop(unsafe { Box::from_raw(fresh) });
            slot()
        }
    }
}

impl Slot {
    /// Starts the runtime. The settings are read once; a thread that could not be had is asked for
    /// again at the next use. Of two threads that start it at the same time, one's is dropped.
    #[cold]
    fn start(&'static self) -> Result<&'static Runtime, Error> {
        let settings = self.settings.get_or_init(Settings::read).clone()?;
        let path = settings.trace.clone();
        let mut fresh = Some(Runtime::start(settings)?);
        let started = self
            .runtime
            .get_or_init(|| fresh.take().unwrap_or_else(|| unreachable!("once")));
        if fresh.is_some() {
            return Ok(started);
        }
        tracing::debug!(
            workers = started.settings.workers,
            host_threads = started.settings.host_threads,
            "the runtime begins"
        );
        if let Some(path) = path {
            started.tracer.start_by_environment(started, &path)?;
        }
        Ok(started)
    }
}

impl Runtime {
    fn start(settings: Settings) -> Result<Self, Error> {
        let binding = BINDING.get();
        let executor = Executor::new(Config {
            workers: settings.workers,
            host_threads: settings.host_threads,
            reporter: reporter(),
            recruiter: binding.map(|binding| binding.recruiter),
        })
        .map_err(|error| refused(Refused::NoThread(error)))?;
        Ok(Self {
            executor,
            settings,
            pool: Pool::new(Device::cpu().total_memory()),
            default_stream: OnceLock::new(),
            roster: Roster::default(),
            tracer: Tracer::default(),
            binding: OnceLock::new(),
        })
    }

    pub(crate) fn default_stream(&self, device: Device) -> &Stream {
        self.default_stream
            .get_or_init(|| Stream::over(self, self.executor.inline_strand("default"), device))
    }

    /// The streams that somebody holds.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.roster
            .all()
            .into_iter()
            .map(Stream::of_handle)
            .collect()
    }
}

fn reporter() -> Reporter {
    BINDING
        .get()
        .map_or_else(to_standard_error, |binding| (binding.reporter)())
}

fn to_standard_error() -> Reporter {
    Box::new(|failure| {
        let failure = wait::describe(failure);
        // Not `eprintln!`, which panics where nobody reads.
        let _ = writeln!(
            io::stderr(),
            "clika_runtime: nobody acknowledged that {failure}"
        );
    })
}

/// The error for a submission that was not accepted.
pub(crate) fn refused(refused: Refused) -> Error {
    match refused {
        Refused::ShutDown => Error::device(
            "the runtime has shut down, as it does when the program ends: submit earlier",
            None,
        ),
        Refused::Inherited => Error::device(
            "this stream belongs to the process that this one was forked from: create one here",
            None,
        ),
        Refused::NoThread(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
            Error::out_of_memory("there is no memory for a thread of the runtime")
        }
        Refused::NoThread(error) => Error::device(
            "no thread could be started for the runtime: allow this process more threads",
            Some(Arc::new(error)),
        ),
        other => Error::device(other.to_string(), None),
    }
}

/// Ends the runtime of this process: waits until all submitted work has run or `timeout` passed,
/// then drops what has not begun. `true` if nothing had to be dropped. Failures that nobody has
/// acknowledged by then are reported on the standard error stream.
///
/// From then on submissions are refused with a device error. A program that returns from `main`
/// without calling this loses the work that is still queued.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use clika_runtime::{Device, Stream};
///
/// let stream = Stream::create(Device::cpu())?;
/// stream.submit(|| println!("the last words"))?;
/// assert!(clika_runtime::shutdown(Duration::from_secs(5)));
/// assert!(stream.submit(|| ()).unwrap_err().is_device());
/// # Ok::<(), clika_runtime::Error>(())
/// ```
pub fn shutdown(timeout: Duration) -> bool {
    let Some(runtime) = started() else {
        return true;
    };
    let drained = runtime.executor.drain(Instant::now().checked_add(timeout));
    runtime.executor.close();
    if !drained {
        tracing::warn!("the runtime shut down before all work was done: the rest was dropped");
    }
    let _ = trace::stop();
    runtime
        .executor
        .take_unacknowledged()
        .iter()
        .for_each(reporter());
    drained
}
