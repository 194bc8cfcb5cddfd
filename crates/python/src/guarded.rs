//! Values that the interpreter lock guards.
//!
//! A mutex of its own would cost every operation more than its work. The module declares that it
//! needs the interpreter lock, so an attached thread is the only one.
#![allow(
    unsafe_code,
    reason = "the interpreter lock is a lock that the compiler does not know"
)]

use std::cell::{Cell, UnsafeCell};

use pyo3::prelude::*;

pub(crate) struct Guarded<T> {
    value: UnsafeCell<T>,
    borrowed: Cell<bool>,
}

// SAFETY: the value is reached by attached threads only, one at a time.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
            borrowed: Cell::new(false),
        }
    }

    /// Calls `f` with the value. Python code must not run in `f`, since it could let go of the lock
    /// or come back here: move objects out, and drop them afterwards.
    ///
    /// # Panics
    /// If `f` comes back here.
    #[inline]
    pub(crate) fn with<R>(&self, _attached: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        assert!(
            !self.borrowed.replace(true),
            "a guarded value is used within its own use"
        );
        // SAFETY: the caller is attached, so no other thread is here, and the flag shows that this
        // thread is not either.
        let result = f(unsafe { &mut *self.value.get() });
        self.borrowed.set(false);
        result
    }

    /// For the collector, which runs attached but has no token to show for it: calls `f` unless the
    /// value is in use.
    ///
    /// # Safety
    /// The calling thread is attached, and `f` runs no Python code.
    pub(crate) unsafe fn visit<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        if self.borrowed.get() {
            return None;
        }
        // SAFETY: promised by the caller; nobody uses the value, as the flag shows.
        Some(f(unsafe { &*self.value.get() }))
    }
}
