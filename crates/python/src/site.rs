//! The line that submitted an operation.
//!
//! What is kept is the code object and the position in it, which costs two pointer reads; the line
//! is looked up only when somebody wants to know. The frame is never kept.
#![allow(
    unsafe_code,
    reason = "reads the current frame; each block states its reason"
)]

use std::os::raw::c_int;

use pyo3::ffi;
use pyo3::prelude::*;

unsafe extern "C" {
    /// In CPython since 3.11, and exported by every version since.
    fn PyFrame_GetLasti(frame: *mut ffi::PyFrameObject) -> c_int;
    fn PyFrame_GetBack(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject;
}

/// Where a call was made.
pub(crate) struct Site {
    code: Option<Py<PyAny>>,
    position: c_int,
}

impl Site {
    /// The Python code that called the function that runs now.
    pub(crate) fn of_caller(py: Python<'_>) -> Self {
        // SAFETY: the thread is attached; the frame is borrowed and may be null.
        unsafe { Self::of_frame(py, ffi::PyEval_GetFrame()) }
    }

    /// The code that called the Python function that called the function that runs now.
    pub(crate) fn of_callers_caller(py: Python<'_>) -> Self {
        // SAFETY: as in `of_caller`; `PyFrame_GetBack` returns a new reference or null.
        unsafe {
            let frame = ffi::PyEval_GetFrame();
            if frame.is_null() {
                return Self {
                    code: None,
                    position: -1,
                };
            }
            let back = PyFrame_GetBack(frame);
            let site = Self::of_frame(py, back);
            ffi::Py_XDECREF(back.cast());
            site
        }
    }

    /// # Safety
    /// `frame` is null or a frame.
    unsafe fn of_frame(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> Self {
        if frame.is_null() {
            return Self {
                code: None,
                position: -1,
            };
        }
        // SAFETY: promised by the caller; `PyFrame_GetCode` returns a new reference.
        unsafe {
            let code = ffi::PyFrame_GetCode(frame);
            Self {
                code: Bound::from_owned_ptr_or_opt(py, code.cast()).map(Bound::unbind),
                position: PyFrame_GetLasti(frame),
            }
        }
    }

    /// The place as `file:line`.
    pub(crate) fn text(&self, py: Python<'_>) -> String {
        self.find(py)
            .unwrap_or_else(|_| "an unknown line".to_owned())
    }

    fn find(&self, py: Python<'_>) -> PyResult<String> {
        let Some(code) = &self.code else {
            return Ok("a line outside Python".to_owned());
        };
        let code = code.bind(py);
        let file: String = code.getattr("co_filename")?.extract()?;
        for range in code.call_method0("co_lines")?.try_iter()? {
            let (start, end, line): (c_int, c_int, Option<u32>) = range?.extract()?;
            if let Some(line) = line.filter(|_| (start..end).contains(&self.position)) {
                return Ok(format!("{file}:{line}"));
            }
        }
        let line: u32 = code.getattr("co_firstlineno")?.extract()?;
        Ok(format!("{file}:{line}"))
    }

    pub(crate) fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.code)
    }
}
