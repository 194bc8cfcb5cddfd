//! The line that submitted an operation.
//!
//! The frame tells a code object and a position in it; the line is looked up once for each such place
//! and remembered, in a table of fixed size. Neither the frame nor the code is kept: the table knows a
//! code object by its address, and by a weak reference that it still is the same.
#![allow(
    unsafe_code,
    reason = "reads the current frame; each block states its reason"
)]

use std::os::raw::c_int;
use std::sync::Arc;

use clika_runtime::foreign::{Line, Site};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::guarded::Guarded;

unsafe extern "C" {
    /// In CPython since 3.11, and exported by every version since.
    fn PyFrame_GetLasti(frame: *mut ffi::PyFrameObject) -> c_int;
    fn PyFrame_GetBack(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject;
}

/// Places whose line is known, each at the slot that its address and position lead to.
static KNOWN: Guarded<[Option<Known>; SLOTS]> = Guarded::new([const { None }; SLOTS]);
const SLOTS: usize = 1024;

struct Known {
    place: Place,
    code: Py<PyAny>,
    found: Found,
}

/// A code object's address, and a position in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    code: *mut ffi::PyObject,
    position: c_int,
}

// SAFETY: the address is compared, and never followed.
unsafe impl Send for Place {}

#[derive(Clone)]
enum Found {
    Line(Arc<Line>),
    /// Code of this package, on behalf of its caller.
    Ours,
}

/// The line of the innermost Python code that is not of this package.
pub(crate) fn of_caller(py: Python<'_>) -> Site {
    // SAFETY: the thread is attached; the frame is borrowed, or null.
    let frame = unsafe { ffi::PyEval_GetFrame() };
    match of_frame(py, frame) {
        Some(Found::Line(line)) => Site::Foreign(line),
        Some(Found::Ours) => outside(py, frame),
        None => Site::Unknown,
    }
}

/// Goes back to the first frame that is not of this package.
#[cold]
fn outside(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> Site {
    let next = |frame| {
        // SAFETY: a frame that is alive; the result is a new reference, or null.
        unsafe { Bound::from_owned_ptr_or_opt(py, PyFrame_GetBack(frame).cast()) }
    };
    let mut back = next(frame);
    while let Some(frame) = back {
        let frame_ptr = frame.as_ptr().cast();
        if let Some(Found::Line(line)) = of_frame(py, frame_ptr) {
            return Site::Foreign(line);
        }
        back = next(frame_ptr);
    }
    Site::Unknown
}

/// `frame` is null, or a frame that is alive.
fn of_frame(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> Option<Found> {
    if frame.is_null() {
        return None;
    }
    // SAFETY: the frame is alive, and so is its code, a new reference.
    let (code, position) = unsafe {
        let code = ffi::PyFrame_GetCode(frame);
        let code = Bound::from_owned_ptr_or_opt(py, code.cast())?;
        (code, PyFrame_GetLasti(frame))
    };
    let place = Place {
        code: code.as_ptr(),
        position,
    };
    Some(known(py, place).unwrap_or_else(|| learn(&code, place)))
}

fn slot(place: Place) -> usize {
    let mixed =
        (place.code as usize >> 4) ^ (place.position.unsigned_abs() as usize).wrapping_mul(0x9e37);
    mixed % SLOTS
}

/// What is known of a place whose code is alive.
fn known(py: Python<'_>, place: Place) -> Option<Found> {
    KNOWN.with(py, |slots| {
        let known = slots[slot(place)].as_ref()?;
        // SAFETY: a weak reference; what it leads to is borrowed and only compared.
        let is_same = known.place == place
            && unsafe { ffi::PyWeakref_GetObject(known.code.as_ptr()) } == place.code;
        is_same.then(|| known.found.clone())
    })
}

fn learn(code: &Bound<'_, PyAny>, place: Place) -> Found {
    let py = code.py();
    let found = find(code, place.position).unwrap_or_else(|_| {
        Found::Line(Arc::new(Line {
            file: "an unknown file".to_owned(),
            line: 0,
        }))
    });
    if let Ok(weak) = pyo3::types::PyWeakrefReference::new(code) {
        let known = Known {
            place,
            code: weak.into_any().unbind(),
            found: found.clone(),
        };
        let before = KNOWN.with(py, |slots| slots[slot(place)].replace(known));
        drop(before);
    }
    found
}

fn find(code: &Bound<'_, PyAny>, position: c_int) -> PyResult<Found> {
    let file: String = code.getattr("co_filename")?.extract()?;
    if file.starts_with(package(code.py())?) {
        return Ok(Found::Ours);
    }
    let mut found = code.getattr("co_firstlineno")?.extract()?;
    for range in code.call_method0("co_lines")?.try_iter()? {
        let (start, end, line): (c_int, c_int, Option<u32>) = range?.extract()?;
        if let Some(line) = line.filter(|_| (start..end).contains(&position)) {
            found = line;
            break;
        }
    }
    Ok(Found::Line(Arc::new(Line { file, line: found })))
}

/// The folder of this package.
fn package(py: Python<'_>) -> PyResult<&'static str> {
    static FOLDER: PyOnceLock<String> = PyOnceLock::new();
    let folder = FOLDER.get_or_try_init(py, || {
        let file: String = py.import("clika_runtime")?.getattr("__file__")?.extract()?;
        let end = file.rfind(['/', '\\']).map_or(0, |end| end + 1);
        Ok::<_, PyErr>(file[..end].to_owned())
    })?;
    Ok(folder)
}

/// A line as `file:line`.
pub(crate) fn text(site: &Site) -> String {
    match site.line() {
        Some((file, line)) => format!("{file}:{line}"),
        None => "a line outside Python".to_owned(),
    }
}
