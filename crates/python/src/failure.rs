//! Failures of Python functions: the exception, and the note that says where it came from.

use clika_runtime::foreign::{Failure, Fault, Reason, Site};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTraceback};

/// What an operation in Python leaves when it fails.
struct Raised(Py<PyBaseException>);

/// The note's first word, by which it is known.
const NOTE: &str = "clika_runtime: ";

/// The fault for an exception of an operation that was submitted at `site`.
pub(crate) fn fault(exception: &Bound<'_, PyBaseException>, site: &Site) -> Fault {
    Fault::new(reason(exception), site.clone())
}

/// As [`fault`], without the exception: for who only tells of it.
pub(crate) fn fault_in_words(exception: &Bound<'_, PyBaseException>, site: &Site) -> Fault {
    let reason = Reason::Foreign(Box::new(()), name_of(exception));
    Fault::new(reason, site.clone())
}

/// The reason that an exception is.
pub(crate) fn reason(exception: &Bound<'_, PyBaseException>) -> Reason {
    let raised = Box::new(Raised(exception.clone().unbind()));
    Reason::Foreign(raised, name_of(exception))
}

fn name_of(exception: &Bound<'_, PyBaseException>) -> String {
    let name = exception.get_type().name();
    name.map_or_else(|_| "an exception".to_owned(), |name| name.to_string())
}

/// The exception behind a failure, if Python code raised it.
pub(crate) fn exception_of(failure: &Failure) -> Option<&Py<PyBaseException>> {
    match &failure.reason {
        Reason::Foreign(value, _) => value.downcast_ref::<Raised>().map(|raised| &raised.0),
        _ => None,
    }
}

/// Lets go of the local variables of the frames that an exception came through, and with them of
/// buffers and of views of them, which the failed buffers would keep alive through the exception.
pub(crate) fn let_go_of_locals(exception: &Bound<'_, PyBaseException>) {
    /// Exceptions behind an exception that are looked at.
    const CHAIN: usize = 100;
    let mut chain = vec![exception.as_any().clone()];
    for at in 0..CHAIN {
        let Some(exception) = chain.get(at).cloned() else {
            return;
        };
        clear_frames(&exception);
        for name in ["__cause__", "__context__"] {
            let next = exception.getattr(name).ok();
            let known = |next: &Bound<'_, PyAny>| chain.iter().any(|before| before.is(next));
            chain.extend(
                next.filter(|next| next.is_instance_of::<PyBaseException>() && !known(next)),
            );
        }
    }
}

fn clear_frames(exception: &Bound<'_, PyAny>) {
    let mut next = exception.getattr("__traceback__").ok();
    while let Some(traceback) = next.and_then(|next| next.cast_into::<PyTraceback>().ok()) {
        // A frame that still runs refuses.
        let _ = traceback.getattr("tb_frame").and_then(|frame| {
            let flags: u32 = frame.getattr("f_code")?.getattr("co_flags")?.extract()?;
            if flags & MAY_BE_SUSPENDED == 0 {
                frame.call_method0("clear")?;
            }
            Ok(())
        });
        next = traceback.getattr("tb_next").ok();
    }
}

/// Flags of the code of generators and coroutines: clearing the frame of one would close it.
const MAY_BE_SUSPENDED: u32 = 0x20 | 0x80 | 0x200;

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
