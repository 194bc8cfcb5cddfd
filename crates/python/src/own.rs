//! Values that belong to the thread that made them.
//!
//! Python may touch or drop an object from any thread: the interpreter's end and a fork clear the
//! frames of other threads. What such an object owns for its thread is out of reach there, and is
//! left alone rather than dropped.
#![allow(
    unsafe_code,
    reason = "moves between threads what only its owner can reach"
)]

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pub(crate) struct Own<T> {
    owner: u64,
    value: ManuallyDrop<T>,
}

/// A number that no other thread has or had.
#[inline]
fn here() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static HERE: Cell<u64> = const { Cell::new(0) };
    }
    HERE.with(|here| {
        if here.get() == 0 {
            here.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        here.get()
    })
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
