//! The exception classes, and the one place that turns errors into exceptions.

use std::sync::Arc;

use clika_runtime::Error;
use clika_runtime::foreign::{self, Failure, Reason};
use pyo3::exceptions::{
    PyBaseException, PyException, PyMemoryError, PyNotImplementedError, PyRuntimeError,
    PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::failure::{annotate, exception_of};

/// One class per kind of error; each also derives from the built-in that a user would catch.
pub(crate) struct Exceptions {
    clika: Py<PyType>,
    invalid_argument: Py<PyType>,
    unsupported: Py<PyType>,
    out_of_memory: Py<PyType>,
    device: Py<PyType>,
    cancelled: Py<PyType>,
    deadlock: Py<PyType>,
    timeout: Py<PyType>,
}

static EXCEPTIONS: PyOnceLock<Exceptions> = PyOnceLock::new();

impl Exceptions {
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        EXCEPTIONS.get_or_try_init(py, || Self::make(py))
    }

    fn make(py: Python<'_>) -> PyResult<Self> {
        let exception = py.get_type::<PyException>();
        let clika = class(
            py,
            "ClikaError",
            "Base class of the errors of clika_runtime.",
            &[&exception],
        )?;
        let also = |name, doc, builtin: Bound<'_, PyType>| {
            Ok::<_, PyErr>(class(py, name, doc, &[&clika, &builtin])?.unbind())
        };
        Ok(Self {
            invalid_argument: also(
                "InvalidArgumentError",
                "A value that the call does not take.",
                py.get_type::<PyValueError>(),
            )?,
            unsupported: also(
                "UnsupportedError",
                "Something that this device cannot do, though another kind of device might.",
                py.get_type::<PyNotImplementedError>(),
            )?,
            out_of_memory: also(
                "OutOfMemoryError",
                "Memory ran out. The runtime stays usable.",
                py.get_type::<PyMemoryError>(),
            )?,
            device: also(
                "DeviceError",
                "The device, its driver or the runtime cannot go on: a driver failed, a device was \
                 lost, the runtime has shut down, or a stream belongs to the parent process.",
                py.get_type::<PyRuntimeError>(),
            )?,
            cancelled: also(
                "CancelledError",
                "Work was skipped because earlier work failed. ``__cause__`` is that failure.",
                py.get_type::<PyRuntimeError>(),
            )?,
            deadlock: also(
                "DeadlockError",
                "A wait inside work that could never have ended: it would wait for itself.",
                py.get_type::<PyRuntimeError>(),
            )?,
            timeout: also(
                "TimeoutError",
                "A wait reached its time limit. What was waited for goes on.",
                py.get_type::<PyTimeoutError>(),
            )?,
            clika: clika.unbind(),
        })
    }

    fn all(&self) -> [&Py<PyType>; 8] {
        [
            &self.clika,
            &self.invalid_argument,
            &self.unsupported,
            &self.out_of_memory,
            &self.device,
            &self.cancelled,
            &self.deadlock,
            &self.timeout,
        ]
    }
}

fn class<'py>(
    py: Python<'py>,
    name: &str,
    doc: &str,
    bases: &[&Bound<'py, PyType>],
) -> PyResult<Bound<'py, PyType>> {
    let namespace = PyDict::new(py);
    namespace.set_item("__module__", crate::MODULE)?;
    namespace.set_item("__doc__", doc)?;
    let class = py
        .get_type::<PyType>()
        .call1((name, PyTuple::new(py, bases)?, namespace))?;
    Ok(class.cast_into()?)
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for class in Exceptions::get(py)?.all() {
        let class = class.bind(py);
        module.add(class.name()?, class)?;
    }
    Ok(())
}

/// The exception for an error of the runtime.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let classes = match Exceptions::get(py) {
        Ok(classes) => classes,
        Err(broken) => return broken,
    };
    let class = if error.is_invalid_argument() {
        &classes.invalid_argument
    } else if error.is_unsupported() {
        &classes.unsupported
    } else if error.is_out_of_memory() {
        &classes.out_of_memory
    } else if error.is_device() {
        &classes.device
    } else if error.is_cancelled() {
        &classes.cancelled
    } else if error.is_deadlock() {
        &classes.deadlock
    } else if error.is_timeout() {
        &classes.timeout
    } else {
        &classes.device
    };
    exception(py, class, error.to_string())
}

/// An `InvalidArgumentError` with this message.
pub(crate) fn invalid_argument(py: Python<'_>, message: impl Into<String>) -> PyErr {
    of_class(py, |classes| &classes.invalid_argument, message)
}

/// An `OutOfMemoryError` with this message.
pub(crate) fn out_of_memory(py: Python<'_>, message: impl Into<String>) -> PyErr {
    of_class(py, |classes| &classes.out_of_memory, message)
}

fn of_class(
    py: Python<'_>,
    class: impl FnOnce(&Exceptions) -> &Py<PyType>,
    message: impl Into<String>,
) -> PyErr {
    match Exceptions::get(py) {
        Ok(classes) => exception(py, class(classes), message.into()),
        Err(broken) => broken,
    }
}

/// A `CancelledError` for work that was skipped because of `failure`.
pub(crate) fn skipped(py: Python<'_>, work: &str, failure: &Arc<Failure>) -> PyErr {
    let classes = match Exceptions::get(py) {
        Ok(classes) => classes,
        Err(broken) => return broken,
    };
    if matches!(failure.reason, Reason::ShutDown) {
        let message = format!("{work} was dropped: the runtime shut down before it could run");
        return exception(py, &classes.cancelled, message);
    }
    let message = format!("{work} was skipped, because earlier work failed: see __cause__");
    let error = exception(py, &classes.cancelled, message);
    error.set_cause(py, Some(failed(py, failure)));
    error
}

/// The exception for a failure: the original one, where Python code raised it.
pub(crate) fn failed(py: Python<'_>, failure: &Arc<Failure>) -> PyErr {
    if let Some(original) = exception_of(failure) {
        return PyErr::from_value(original.bind(py).clone().into_any());
    }
    match Exceptions::get(py) {
        Ok(classes) if matches!(failure.reason, Reason::ShutDown) => {
            exception(py, &classes.cancelled, failure.to_string())
        }
        Ok(_) => {
            let error = raised(py, &foreign::failed(failure));
            if let Ok(value) = error.value(py).cast::<PyBaseException>() {
                // Where even that fails, the message tells the same.
                let _ = annotate(value, &failure.origin.to_string());
            }
            error
        }
        Err(broken) => broken,
    }
}

fn exception(py: Python<'_>, class: &Py<PyType>, message: String) -> PyErr {
    PyErr::from_type(class.bind(py).clone(), message)
}
