//! What the runtime says of itself, for Python's `logging`.
//!
//! The runtime tells its events to `tracing`, from whatever thread they happen on, attached or not, with
//! locks held or not. So an event is only written down here, and a host thread hands what was written
//! down to the logger `clika_runtime` as soon as it can; the exit hook hands over the rest.
//!
//! Whether an event is written down at all depends on the logger's level, which only an attached thread
//! can ask for. It is asked for at import, when a stream is made, when a trace begins and whenever
//! records are handed over.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clika_runtime::foreign;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::host::{self, Call};

/// The logger's level, in Python's numbers; those below it are not written down.
static LEVEL: AtomicU64 = AtomicU64::new(30);

/// What was written down and not handed over, in this process.
#[derive(Default)]
pub(crate) struct Logs(Mutex<Records>);

#[derive(Default)]
struct Records {
    waiting: VecDeque<Record>,
    lost: u64,
    /// A host thread is at it, or has been asked to be: one at a time, so that the order stays.
    is_attended: bool,
}

struct Record {
    level: u64,
    message: String,
    thread: String,
    /// Seconds since the epoch.
    time: f64,
}

impl Logs {
    /// More than this wait for a host thread only if none can be had.
    const MOST: usize = 10_000;

    fn write_down(&self, record: Record) {
        let mut records = self.lock();
        if records.waiting.len() < Self::MOST {
            records.waiting.push_back(record);
        } else {
            records.lost += 1;
        }
        let is_attended = std::mem::replace(&mut records.is_attended, true);
        drop(records);
        if !is_attended && let Some(executor) = foreign::started() {
            // Refused at shutdown, where the exit hook hands over what is left.
            let _ = executor.push_loose(Call::Log);
        }
    }

    /// What waits, and how many were lost. Nothing: whoever asks is done.
    fn take(&self) -> (VecDeque<Record>, u64) {
        let mut records = self.lock();
        let lost = std::mem::take(&mut records.lost);
        let waiting = std::mem::take(&mut records.waiting);
        records.is_attended = lost > 0 || !waiting.is_empty();
        (waiting, lost)
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subscriber of this extension module. Other users of `tracing` have their own.
struct ToPython;

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    /// Asked each time: the level may change.
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn event(&self, event: &Event<'_>) {
        // Without a runtime there is nobody to hand it over, and no place of this process's own.
        if foreign::started().is_none() {
            return;
        }
        let Ok(lane) = foreign::state::<host::Lane>() else {
            return;
        };
        let mut text = Text::default();
        event.record(&mut text);
        let thread = foreign::trace::this_thread().to_string();
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        lane.logs.write_down(Record {
            level: number(*event.metadata().level()),
            message: text.message + &text.fields,
            thread,
            time: time.map_or(0.0, |time| time.as_secs_f64()),
        });
    }

    // The runtime has no spans.
    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

/// The level as Python counts.
fn number(level: Level) -> u64 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// The message, and the fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => {
                let separator = if self.fields.is_empty() { ": " } else { ", " };
                write!(self.fields, "{separator}{name}={value:?}")
            }
        };
    }
}

/// Installs the subscriber, and asks for the level.
pub(crate) fn begin(py: Python<'_>) -> PyResult<()> {
    // A second interpreter is refused before this, so nobody else has done it.
    let _ = tracing::subscriber::set_global_default(ToPython);
    look_at_level(py)
}

/// Asks the logger for its level.
pub(crate) fn look_at_level(py: Python<'_>) -> PyResult<()> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let logger = LOGGER.get_or_try_init(py, || {
        let logger = py.import("logging")?.getattr("getLogger")?;
        PyResult::Ok(logger.call1(("clika_runtime",))?.unbind())
    })?;
    let level = logger.call_method0(py, intern!(py, "getEffectiveLevel"))?;
    LEVEL.store(level.extract(py)?, Ordering::Relaxed);
    Ok(())
}

/// Hands over what is left, on the thread that ends the interpreter.
pub(crate) fn finish(py: Python<'_>) {
    if let Err(error) = delivery(py).and_then(|call| call.get_item(0)?.call0()) {
        error.write_unraisable(py, None);
    }
}

/// The call that hands over what was written down.
pub(crate) fn delivery(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, [host::python(py)?.getattr(intern!(py, "log"))?])
}

/// What is to be handed over now: level, message, thread and time of each event, and how many were
/// lost. None: nothing, so whoever hands over is done.
#[pyfunction]
pub(crate) fn _take_log(py: Python<'_>) -> PyResult<Option<(Bound<'_, PyList>, u64)>> {
    let lane: Option<&host::Lane> = foreign::started().and_then(|_| foreign::state().ok());
    let Some((records, lost)) = lane.map(|lane| lane.logs.take()) else {
        return Ok(None);
    };
    if records.is_empty() && lost == 0 {
        return Ok(None);
    }
    look_at_level(py)?;
    let told: Vec<_> = records
        .into_iter()
        .map(|record| (record.level, record.message, record.thread, record.time))
        .collect();
    Ok(Some((PyList::new(py, told)?, lost)))
}
