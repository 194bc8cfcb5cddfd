//! Functions at buffers that they were not given.
//!
//! A function that may block can look at any buffer. For those that it was given, the order has made
//! room. For the others, it comes after what was submitted before the function, and after nothing else:
//! what was submitted behind it may well wait for the function itself.
//!
//! # Protocol
//! A function gets its number when it is submitted, and its thread knows that number while it runs.
//! Each use of a storage is noted with the number of functions at that time, so a function tells what
//! was submitted before itself. At the bytes it is *aside* of the order: it
//! 1. finds what was submitted before it and conflicts, under the order's lock, and waits for that;
//! 2. works under the content's lock, if nobody is at the bytes whom that would disturb: it is as
//!    if it had come before all that is still to begin;
//! 3. else waits for those who are just now next on their streams, and tries again. They were submitted
//!    behind it and have begun, so they do not wait for it by the order.
//!
//! A view outlasts the content's lock. If nothing was submitted behind the function that
//! conflicts, a view is as good as any other. If something was, a read-only view shows a copy, and a
//! writable one cannot be had.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use clika_executor::Position;
use clika_executor::sync::Apart;

use crate::error::Error;
use crate::hazard::Positions;
use crate::storage::{Claim, Missing};
use crate::wait;

/// Functions submitted so far.
static FUNCTIONS: Apart<AtomicU64> = Apart(AtomicU64::new(0));

thread_local! {
    /// The number of the function that the thread runs, the innermost one; 0: none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// The number of a function that is submitted now and may look at buffers that it is not given.
#[must_use]
pub fn number_function() -> u64 {
    FUNCTIONS.0.fetch_add(1, Ordering::AcqRel) + 1
}

/// How many functions have a number.
pub(crate) fn functions() -> u64 {
    FUNCTIONS.0.load(Ordering::Acquire)
}

/// The number of the function that the calling thread is inside of, the innermost one.
#[must_use]
pub fn current_function() -> Option<u64> {
    match CURRENT.get() {
        0 => None,
        number => Some(number),
    }
}

/// The calling thread goes inside a function: the one that it was inside of before, for
/// [`leave_function`].
pub fn enter_function(number: u64) -> u64 {
    CURRENT.replace(number)
}

/// The calling thread is inside of an earlier one again.
pub fn leave_function(before: u64) {
    CURRENT.set(before);
}

/// A function that is submitted now, and gets its number by that.
pub(crate) fn numbered<R>(function: impl FnOnce() -> R + Send) -> impl FnOnce() -> R + Send {
    let number = number_function();
    move || inside(number, function)
}

/// Calls a function by this number.
pub(crate) fn inside<R>(number: u64, function: impl FnOnce() -> R) -> R {
    struct Inside(u64);

    impl Drop for Inside {
        fn drop(&mut self) {
            leave_function(self.0);
        }
    }

    let _inside = Inside(enter_function(number));
    function()
}

/// A function at the bytes of one storage.
pub(crate) struct Aside {
    claim: Claim,
    /// To be reached before the next attempt.
    positions: Positions,
}

impl Aside {
    /// # Errors
    /// If the storage was inherited by a fork, is being viewed, or is read and never written.
    pub(crate) fn new(claim: Claim, function: u64) -> Result<Self, Error> {
        claim.storage.admit()?;
        let positions = if claim.storage.is_held_here() {
            Positions::new()
        } else {
            claim.storage.order.lock().before(function, claim.access)?
        };
        Ok(Self { claim, positions })
    }

    pub(crate) fn positions(&self) -> &[Position] {
        &self.positions
    }

    fn attempt<R>(
        &self,
        f: impl FnOnce(NonNull<u8>) -> Result<Option<R>, Missing>,
    ) -> Result<Option<R>, Missing> {
        self.claim.storage.aside(self.claim.access, f)
    }

    /// Finds out whom to wait for.
    fn look_again(&mut self) -> Result<(), Missing> {
        let order = self.claim.storage.order.lock();
        let found = order.under_way(self.claim.access);
        drop(order);
        self.positions = found.map_err(Missing::Error)?;
        Ok(())
    }

    /// The bytes are there from here on, if they were not before.
    fn note(&self) {
        if self.claim.access.writes() {
            self.claim.storage.order.lock().note_written();
        }
    }
}

/// Calls `f`, which must be brief, with where the bytes of all of these are: there are at most two.
/// `None`: somebody is in the way, and the positions tell whom to wait for.
pub(crate) fn attempt<R>(
    asides: &mut [Aside],
    f: impl FnOnce(&[NonNull<u8>]) -> R,
) -> Result<Option<R>, Missing> {
    let done = match &*asides {
        [] => Some(f(&[])),
        [only] => only.attempt(|start| Ok(Some(f(&[start]))))?,
        // Both contents are locked by their ids, so that no two threads lock each other out.
        [first, second, ..] if first.claim.storage.id() < second.claim.storage.id() => {
            first.attempt(|a| second.attempt(|b| Ok(Some(f(&[a, b])))))?
        }
        [first, second, ..] => second.attempt(|b| first.attempt(|a| Ok(Some(f(&[a, b])))))?,
    };
    if done.is_some() {
        asides.iter().for_each(Aside::note);
    } else {
        asides.iter_mut().try_for_each(Aside::look_again)?;
    }
    Ok(done)
}

/// Calls `f` inside function number `function` with where the bytes are, once nobody is in the way.
pub(crate) fn reach<R>(
    claim: Claim,
    function: u64,
    mut f: impl FnMut(NonNull<u8>) -> R,
) -> Result<R, Missing> {
    let mut aside = [Aside::new(claim, function).map_err(Missing::Error)?];
    loop {
        for position in aside[0].positions() {
            wait::reach(position, None).map_err(Missing::Error)?;
        }
        if let Some(done) = attempt(&mut aside, |starts| f(starts[0]))? {
            return Ok(done);
        }
    }
}
