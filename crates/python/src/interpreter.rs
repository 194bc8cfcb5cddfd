//! Which interpreter this is.
#![allow(unsafe_code, reason = "asks the interpreter for its number")]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Refuses subinterpreters: the runtime's threads, and what they hold, belong to the main one.
pub(crate) fn admit(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached, so it has a current interpreter.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "clika_runtime works in the main interpreter only, not in a subinterpreter: import it there, \
         or use another process",
    ))
}
