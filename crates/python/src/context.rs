//! The current stream: a context variable, so that every thread and every asyncio task has its own.
//!
//! It holds the streams that were entered and not left, as a tuple: two tasks may share a stream,
//! and each sees only its own entries.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::inline;
use crate::stream::{Stream, device_of};

fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ENTERED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let variable = ENTERED.get_or_try_init(py, || {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        PyResult::Ok(class.call1(("clika_runtime.entered",))?.unbind())
    })?;
    Ok(variable.bind(py))
}

fn entered(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let entered = variable(py)?.call_method1(intern!(py, "get"), (PyTuple::empty(py),))?;
    Ok(entered.cast_into()?)
}

pub(crate) fn enter(stream: &Bound<'_, Stream>) -> PyResult<()> {
    let py = stream.py();
    let mut streams: Vec<_> = entered(py)?.iter().collect();
    streams.push(stream.clone().into_any());
    set(py, streams)
}

/// Leaves the innermost entry of `stream`, which most often is the innermost of all.
pub(crate) fn leave(stream: &Bound<'_, Stream>) -> PyResult<()> {
    let py = stream.py();
    let mut streams: Vec<_> = entered(py)?.iter().collect();
    let Some(place) = streams.iter().rposition(|entry| entry.is(stream)) else {
        return Err(PyRuntimeError::new_err(
            "this stream is not entered here: leave it in the thread or task that entered it",
        ));
    };
    streams.remove(place);
    set(py, streams)
}

fn set(py: Python<'_>, streams: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    variable(py)?.call_method1(intern!(py, "set"), (PyTuple::new(py, streams)?,))?;
    Ok(())
}

/// The current stream of a device, for this thread or asyncio task: the one entered last by
/// ``with stream:``, else the default one.
///
/// Parameters
/// ----------
/// device : Device
///
/// Returns
/// -------
/// Stream
///
/// Examples
/// --------
/// >>> from clika_runtime import Device, Stream, current_stream
/// >>> cpu = Device.parse("cpu")
/// >>> current_stream(cpu).is_default()
/// True
/// >>> with Stream.create(cpu) as stream:
/// ...     current_stream(cpu) == stream
/// True
#[pyfunction]
pub(crate) fn current_stream<'py>(
    py: Python<'py>,
    device: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    current(py, device_of(device)?)
}

/// As [`current_stream`].
pub(crate) fn current(py: Python<'_>, device: clika_runtime::Device) -> PyResult<Bound<'_, PyAny>> {
    for entry in entered(py)?.iter().rev() {
        if entry.cast::<Stream>()?.get().0.device() == device {
            return Ok(entry);
        }
    }
    inline::default_stream(py, device)
}
