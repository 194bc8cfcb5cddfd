//! The current stream: a context variable, so that every thread and every asyncio task has its own.
//!
//! It holds the streams that were entered and not left, as a tuple: two tasks may share a stream,
//! and each sees only its own entries.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::inline;
use crate::stream::{Stream, device_of};

/// The methods of the variable.
struct Variable {
    get: Py<PyAny>,
    set: Py<PyAny>,
}

fn variable(py: Python<'_>) -> PyResult<&Variable> {
    static ENTERED: PyOnceLock<Variable> = PyOnceLock::new();
    ENTERED.get_or_try_init(py, || {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let options = PyDict::new(py);
        options.set_item("default", PyTuple::empty(py))?;
        let variable = class.call(("clika_runtime.entered",), Some(&options))?;
        let (get, set) = (variable.getattr("get")?, variable.getattr("set")?);
        Ok(Variable {
            get: get.unbind(),
            set: set.unbind(),
        })
    })
}

fn entered(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let entered = variable(py)?.get.bind(py).call0()?;
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
    let streams = PyTuple::new(py, streams)?;
    variable(py)?.set.bind(py).call1((streams,)).map(drop)
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
