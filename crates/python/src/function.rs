//! The buffers that a submitted function has.

use clika_runtime::foreign::{Arguments, Using};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::buffer::Buffer;

/// The buffers of a function, before and while it runs.
pub(crate) enum Uses {
    Submitted(Arguments),
    Begun(Using),
}

/// How deep lists and the like are looked into. They may contain themselves.
const DEPTH: u32 = 16;

/// The buffers among the arguments of a call: None if there are none.
pub(crate) fn arguments(
    call: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> Option<Arguments> {
    let mut found = Vec::new();
    for argument in call.iter_borrowed().skip(1) {
        find(&argument, DEPTH, &mut found);
    }
    for (_, argument) in keywords.into_iter().flatten() {
        find(&argument, DEPTH, &mut found);
    }
    if found.is_empty() {
        return None;
    }
    Some(Arguments::new(found.iter().map(|buffer| &buffer.get().0)))
}

fn find(argument: &Bound<'_, PyAny>, depth: u32, found: &mut Vec<Py<Buffer>>) {
    if let Ok(buffer) = argument.cast_exact::<Buffer>() {
        found.push(buffer.clone().unbind());
    } else if depth == 0 {
    } else if let Ok(tuple) = argument.cast::<PyTuple>() {
        for item in tuple.iter_borrowed() {
            find(&item, depth - 1, found);
        }
    } else if let Ok(list) = argument.cast::<PyList>() {
        for item in list {
            find(&item, depth - 1, found);
        }
    } else if let Ok(dict) = argument.cast::<PyDict>() {
        for (_, item) in dict {
            find(&item, depth - 1, found);
        }
    }
}
