//! Values that belong to the thread that made them.
//!
//! Python may touch or drop an object from any thread: the interpreter's end and a fork clear the
//! frames of other threads. What such an object owns for its thread is out of reach there, and is
//! left alone rather than dropped.
#![allow(
    unsafe_code,
    reason = "moves between threads what only its owner can reach"
)]

use std::mem::ManuallyDrop;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pub(crate) struct Own<T> {
    owner: usize,
    value: ManuallyDrop<T>,
}

/// A number that no other living thread has.
#[inline]
fn here() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

// SAFETY: the value is reached and dropped on the thread that made it, and nowhere else.
unsafe impl<T> Send for Own<T> {}
// SAFETY: as above; a shared reference gives no access at all.
unsafe impl<T> Sync for Own<T> {}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            owner: here(),
            value: ManuallyDrop::new(value),
        }
    }

    pub(crate) fn get(&mut self) -> PyResult<&mut T> {
        if here() != self.owner {
            return Err(PyRuntimeError::new_err(
                "this object belongs to another thread",
            ));
        }
        Ok(&mut self.value)
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if here() == self.owner {
            // SAFETY: the value is dropped once, since this is its owner's drop.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
