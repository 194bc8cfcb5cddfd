//! Faults on demand, for tests: the n-th allocation or thread fails.
//!
//! Only where debug assertions are on; elsewhere nothing ever fails by this.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

/// What can be made to fail.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Memory for a buffer.
    Allocation,
    /// A thread of the executor's own.
    Thread,
}

/// How many more of each kind succeed before one fails, plus one; zero: no fault is planned.
#[cfg(debug_assertions)]
static PLANNED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Makes the `n`-th from here on fail, counted from 1, and those behind it succeed again. Zero takes
/// a plan back. `true`: the last plan has struck, or there was none.
#[cfg(debug_assertions)]
pub fn plan(fault: Fault, n: u64) -> bool {
    PLANNED[fault as usize].swap(n, Ordering::SeqCst) == 0
}

/// Whether this one is to fail.
#[cfg(debug_assertions)]
pub fn strikes(fault: Fault) -> bool {
    let planned = &PLANNED[fault as usize];
    if planned.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let count = |left: u64| left.checked_sub(1);
    planned.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(1)
}

/// Nothing is made to fail in this build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn strikes(_fault: Fault) -> bool {
    false
}
