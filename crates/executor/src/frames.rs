//! The operations that the calling thread is inside of, innermost last.
//!
//! More than one only where work on an inline strand runs inside another operation.

use std::cell::{Cell, RefCell};

use crate::sync::thread_local;

/// An operation by its strand's id and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) strand: u64,
    pub(crate) n: u64,
}

impl Frame {
    /// An operation that belongs to no strand.
    pub(crate) const LOOSE: Self = Self {
        strand: u64::MAX,
        n: 0,
    };
}

thread_local! {
    static IN_CALL: Cell<bool> = Cell::new(false);
    static FRAMES: RefCell<Vec<Frame>> = RefCell::new(Vec::new());
}

#[inline]
pub(crate) fn enter(frame: Frame) {
    let _ = FRAMES.try_with(|frames| frames.borrow_mut().push(frame));
}

/// Leaves the innermost operation.
#[inline]
pub(crate) fn leave() {
    let _ = FRAMES.try_with(|frames| frames.borrow_mut().pop());
}

/// Makes a call that waited for a point, on the thread that reached it.
pub(crate) fn in_call(call: impl FnOnce()) {
    let before = IN_CALL.try_with(|in_call| in_call.replace(true));
    call();
    let _ = IN_CALL.try_with(|in_call| in_call.set(before.unwrap_or(false)));
}

#[inline]
pub(crate) fn are_in_call() -> bool {
    IN_CALL.try_with(Cell::get).unwrap_or(false)
}

#[inline]
pub(crate) fn are_inside() -> bool {
    FRAMES
        .try_with(|frames| !frames.borrow().is_empty())
        .unwrap_or(false)
}

/// Whether the calling thread is inside operation `n` of the strand with this id.
#[must_use]
pub fn is_inside(strand: u64, n: u64) -> bool {
    FRAMES
        .try_with(|frames| frames.borrow().contains(&Frame { strand, n }))
        .unwrap_or(false)
}

pub(crate) fn all() -> Vec<Frame> {
    FRAMES
        .try_with(|frames| frames.borrow().clone())
        .unwrap_or_default()
}

/// The operation of `strand` that the calling thread is inside of.
pub(crate) fn inside(strand: u64) -> Option<u64> {
    let find = |frames: &RefCell<Vec<Frame>>| {
        frames
            .borrow()
            .iter()
            .rev()
            .find(|frame| frame.strand == strand)
            .map(|frame| frame.n)
    };
    FRAMES.try_with(find).ok().flatten()
}
