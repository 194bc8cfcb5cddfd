//! Timelines: the counter that everything waits on.
//!
//! Operation n of a strand is done when its timeline has reached n; the counter only grows. Host
//! threads, other strands, asynchronous tasks and callbacks all wait on it in the same way: they
//! leave a [`Waiter`] for a target and are woken once, when the target is reached, and not before.
//!
//! # Protocol
//! One word holds `reached << 1 | WAITED`. Reaching the next number is one read-modify-write of
//! it, and so is announcing a waiter; whichever comes second in the word's modification order sees
//! the other, so no wake-up is lost and no stronger fence is needed.
//!
//! * `advance` (holder of the strand's turn): adds one; if `WAITED` was set and the smallest
//!   target (`next`, stored before `WAITED` was) is reached, it wakes under the lock's list.
//! * `register` (anyone): under the lock puts the waiter into the list, stores `next`, sets
//!   `WAITED`. If the number read by that is already at the target, takes the waiter back.
//! * `WAITED` is cleared only under the lock, when the list is empty.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::failure::contain;
use crate::strand::Turn;
use crate::sync::{AtomicU64, Mutex, Ordering, Thread};

const WAITED: u64 = 1;
const STEP: u64 = 2;
const NOBODY: u64 = u64::MAX;

/// Whom to wake, and how.
pub(crate) enum Waiter {
    /// A host thread: it looks at the timeline again.
    Thread(Thread),
    /// A parked strand: it becomes ready.
    Strand(Turn),
    /// An asynchronous task.
    Task(Waker),
    /// Anything else; brief, and called where no lock is held.
    Call(Box<dyn FnOnce() + Send>),
}

impl Waiter {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Strand(turn) => turn.schedule(),
            // Foreign code: its panic is not the strand's.
            Self::Task(waker) => contain(|| waker.wake()),
            Self::Call(call) => contain(call),
        }
    }
}

/// A registered waiter, to take it back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    target: u64,
    serial: u64,
}

struct Entry {
    ticket: Ticket,
    waiter: Waiter,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.ticket == other.ticket
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The smallest target is the greatest entry, and among equals the first that came.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        Reverse(self.ticket).cmp(&Reverse(other.ticket))
    }
}

#[derive(Default)]
struct Waiters {
    heap: BinaryHeap<Entry>,
    serial: u64,
}

/// The counter of one strand.
pub(crate) struct Timeline {
    word: AtomicU64,
    next: AtomicU64,
    waiters: Mutex<Waiters>,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            next: AtomicU64::new(NOBODY),
            waiters: Mutex::new(Waiters::default()),
        }
    }

    /// How many operations are done. Their writes are visible to the caller.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.word.load(Ordering::Acquire) / STEP
    }

    /// Counts one more operation as done. For the holder of the strand's turn only.
    #[inline]
    pub(crate) fn advance(&self) {
        let before = self.word.fetch_add(STEP, Ordering::AcqRel);
        let reached = before / STEP + 1;
        if before & WAITED != 0 && self.next.load(Ordering::Relaxed) <= reached {
            self.wake(reached);
        }
    }

    /// Leaves `waiter` until `target` is reached, or gives it back if that is already so.
    pub(crate) fn register(&self, target: u64, waiter: Waiter) -> Result<Ticket, Waiter> {
        let mut waiters = self.waiters.lock();
        waiters.serial += 1;
        let ticket = Ticket { target, serial: waiters.serial };
        waiters.heap.push(Entry { ticket, waiter });
        self.announce(&waiters);
        let reached = self.word.fetch_or(WAITED, Ordering::AcqRel) / STEP;
        if reached < target {
            return Ok(ticket);
        }
        match self.remove(&mut waiters, ticket) {
            Some(waiter) => Err(waiter),
            None => Ok(ticket),
        }
    }

    /// Takes a waiter back, unless it has been woken.
    pub(crate) fn unregister(&self, ticket: Ticket) -> Option<Waiter> {
        let mut waiters = self.waiters.lock();
        self.remove(&mut waiters, ticket)
    }

    fn remove(&self, waiters: &mut Waiters, ticket: Ticket) -> Option<Waiter> {
        if waiters.heap.peek().is_some_and(|first| first.ticket == ticket) {
            let entry = waiters.heap.pop();
            self.announce(waiters);
            return entry.map(|entry| entry.waiter);
        }
        let mut found = None;
        let entries = std::mem::take(&mut waiters.heap).into_vec();
        waiters.heap = entries
            .into_iter()
            .filter_map(|entry| {
                if entry.ticket == ticket {
                    found = Some(entry.waiter);
                    None
                } else {
                    Some(entry)
                }
            })
            .collect();
        self.announce(waiters);
        found
    }

    #[cold]
    fn wake(&self, reached: u64) {
        while let Some(waiter) = self.pop_due(reached) {
            waiter.wake();
        }
    }

    fn pop_due(&self, reached: u64) -> Option<Waiter> {
        let mut waiters = self.waiters.lock();
        if waiters.heap.peek()?.ticket.target > reached {
            return None;
        }
        let entry = waiters.heap.pop()?;
        self.announce(&waiters);
        Some(entry.waiter)
    }

    /// Tells `advance` of the smallest target. The caller holds the lock.
    fn announce(&self, waiters: &Waiters) {
        match waiters.heap.peek() {
            Some(first) => self.next.store(first.ticket.target, Ordering::Relaxed),
            None => {
                self.next.store(NOBODY, Ordering::Relaxed);
                self.word.fetch_and(!WAITED, Ordering::AcqRel);
            }
        }
    }
}
