//! Failures of Python functions: the exception, and the note that says where it came from.

use clika_runtime::foreign::{Failure, Fault, Reason};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

/// What an operation in Python leaves when it fails.
struct Raised(Py<PyBaseException>);

/// The note's first word, by which it is known.
const NOTE: &str = "clika_runtime: ";

/// The fault for an exception.
pub(crate) fn fault(exception: &Bound<'_, PyBaseException>) -> Fault {
    let reason = Reason::Foreign(Box::new(Raised(exception.clone().unbind())));
    Fault::new(reason, None)
}

/// The exception behind a failure, if Python code raised it.
pub(crate) fn exception_of(failure: &Failure) -> Option<&Py<PyBaseException>> {
    match &failure.reason {
        Reason::Foreign(value) => value.downcast_ref::<Raised>().map(|raised| &raised.0),
        _ => None,
    }
}

/// Notes on an exception which operation raised it. Once: an exception that is raised again keeps
/// its first note.
pub(crate) fn annotate(exception: &Bound<'_, PyBaseException>, text: &str) -> PyResult<()> {
    let py = exception.py();
    let notes = exception.getattr_opt("__notes__")?;
    if let Some(notes) = notes.and_then(|notes| notes.cast_into::<PyList>().ok()) {
        let ours = |note: Bound<'_, PyAny>| {
            note.cast::<PyString>()
                .is_ok_and(|note| note.to_string_lossy().starts_with(NOTE))
        };
        if notes.iter().any(ours) {
            return Ok(());
        }
    }
    // Not the exception's own method: a subclass may have replaced it.
    let add_note = py.get_type::<PyBaseException>().getattr("add_note")?;
    add_note.call1((exception, format!("{NOTE}{text}")))?;
    Ok(())
}
