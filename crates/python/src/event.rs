//! Events.

use clika_runtime::foreign::{self, Point};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::exceptions::{failed, raised};
use crate::failure::exception_of;
use crate::host;
use crate::stream::Stream;
use crate::wait::{deadline, reach_in_time, refuse_deadlock};

/// A point on a stream's timeline: what was submitted before it was recorded, and nothing after.
///
/// `Stream.record_event` makes one. Whoever waits for it, the host or another stream, sees
/// everything before it. Waiting for an event that covers a failure raises that, but does not
/// acknowledge it.
///
/// Examples
/// --------
/// >>> from clika_runtime import Device, Stream
/// >>> stream = Stream.create(Device.parse("cpu"))
/// >>> future = stream.submit(print, "before")
/// >>> event = stream.record_event()
/// >>> event.synchronize()
/// before
/// >>> event.query()
/// True
#[pyclass(frozen, weakref, module = "clika_runtime._core")]
pub(crate) struct Event {
    stream: Py<Stream>,
    pub(crate) event: clika_runtime::Event,
}

impl Event {
    pub(crate) fn new(stream: Py<Stream>, event: clika_runtime::Event) -> Self {
        Self { stream, event }
    }

    fn point(&self) -> &Point {
        foreign::point(&self.event)
    }
}

#[pymethods]
impl Event {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(*args, **kwargs)")]
    fn new_refused(
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(PyTypeError::new_err(
            "an Event is not constructed: use Stream.record_event()",
        ))
    }

    /// The stream that it was recorded on.
    #[getter]
    fn stream(&self, py: Python<'_>) -> Py<Stream> {
        self.stream.clone_ref(py)
    }

    /// Whether the mark is reached, failed or not. Never blocks, never raises.
    fn query(&self) -> bool {
        self.event.query()
    }

    /// Blocks until the mark is reached.
    ///
    /// Parameters
    /// ----------
    /// timeout : float, optional
    ///     Seconds to wait at most. None or infinity waits for ever, 0 polls.
    ///
    /// Raises
    /// ------
    /// TimeoutError
    ///     If it is not reached by then.
    /// DeadlockError
    ///     If this is called inside work that would wait for itself.
    /// BaseException
    ///     The failure that the event covers. It stays unacknowledged.
    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        reach_in_time(py, self.point(), deadline)?;
        self._raise(py)
    }

    /// The time from this event to another, in milliseconds.
    ///
    /// Parameters
    /// ----------
    /// end : Event
    ///
    /// Returns
    /// -------
    /// float
    ///     Milliseconds; negative if `end` was reached first.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     Unless both were recorded with ``timing=True`` and are reached.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> start = stream.record_event(timing=True)
    /// >>> future = stream.submit(sum, range(1000))
    /// >>> end = stream.record_event(timing=True)
    /// >>> end.synchronize()
    /// >>> start.elapsed_time(end) > 0
    /// True
    fn elapsed_time(&self, py: Python<'_>, end: &Self) -> PyResult<f64> {
        let seconds = self.event.elapsed_seconds(&end.event);
        seconds
            .map(|seconds| seconds * 1e3)
            .map_err(|error| raised(py, &error))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        host::awaiting(slf.py(), "event", slf.as_any())
    }

    fn __repr__(&self) -> String {
        let state = if self.query() { "reached" } else { "pending" };
        format!(
            "<Event of stream '{}': {state}>",
            self.stream.get().0.name()
        )
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an Event cannot be pickled or copied: it is a point on a stream of this process. \
             Wait for it here, and tell the other process instead",
        ))
    }

    /// For `await`: raises what the reached event covers.
    fn _raise(&self, py: Python<'_>) -> PyResult<()> {
        self.point()
            .failure()
            .map_or(Ok(()), |failure| Err(failed(py, &failure)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.stream)?;
        // A failure that only this event still holds leads to frames, and from there maybe back here.
        let visited = self.point().with_sole_failure(|failure| {
            exception_of(failure).map_or(Ok(()), |exception| visit.call(exception))
        });
        visited.unwrap_or(Ok(()))
    }
}

/// A point that asyncio waits for.
#[pyclass(frozen, module = "clika_runtime._core")]
pub(crate) struct Mark(Point);

/// The point that everything submitted to a stream so far is before, or that an event is.
#[pyfunction]
pub(crate) fn _mark(source: &Bound<'_, PyAny>) -> PyResult<Mark> {
    let py = source.py();
    let point = match source.cast::<Event>() {
        Ok(event) => event.get().point().clone(),
        Err(_) => foreign::strand(&source.cast::<Stream>()?.get().0).point(),
    };
    refuse_deadlock(py, &point)?;
    Ok(Mark(point))
}

#[pymethods]
impl Mark {
    fn is_reached(&self) -> bool {
        self.0.is_reached()
    }

    /// Calls `call()` on the host lane once the point is reached.
    fn when_reached(&self, call: Bound<'_, PyAny>) -> PyResult<()> {
        let py = call.py();
        host::ensure(py)?;
        let call = host::Posted::new(PyTuple::new(py, [call])?);
        self.0.when_reached(move || call.post());
        Ok(())
    }

    /// Raises the failure that the point covers, which acknowledges it.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        crate::stream::settle(py, &self.0)
    }
}
