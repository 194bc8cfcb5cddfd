//! Timelines: the counter that everything waits on.
//!
//! Operation n of a strand is done when its timeline has reached n; the counter only grows. Host
//! threads, other strands, asynchronous tasks and callbacks all wait on it in the same way: they
//! leave a [`Waiter`] for a target and are woken once, when the target is reached, and not before.
//!
//! # Protocol
//! Reaching the next number is one read-modify-write of the counter, and so is announcing a waiter;
//! whichever comes second in the counter's modification order sees what the other did before, so no
//! wake-up is lost and no stronger fence is needed.
//!
//! * `advance` (holder of the strand's turn): adds one; if the smallest target (`next`) is reached,
//!   it wakes who is due, popping each under the lock.
//! * `register` (anyone): under the lock puts the waiter into the list and stores `next`, then adds
//!   zero to the counter. If the number read by that is already at the target, it takes the waiter
//!   back.
//! * `next` is stored only under the lock, but for `hurry`, which stores the smallest number. A stale
//!   larger value cannot hide a registered waiter, by the above; a smaller one costs a look at the
//!   list, which stores the right one again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::failure::contain;
use crate::frames;
use crate::operation::Kind;
use crate::strand::Turn;
use crate::sync::{AtomicU64, Mutex, Ordering, Thread};

const NOBODY: u64 = u64::MAX;

/// Whom to wake, and how.
pub(crate) enum Waiter {
    /// A host thread: it looks at the timeline again.
    Thread(Thread),
    /// A parked strand: it becomes ready. What its next work needs, if that was known.
    Strand(Turn, Option<Kind>),
    /// An asynchronous task.
    Task(Waker),
    /// Anything else; brief, and called where no lock is held.
    Call(Box<dyn FnOnce() + Send>),
}

impl Waiter {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Strand(turn, kind) => turn.schedule(kind),
            // Foreign code: its panic is not the strand's.
            Self::Task(waker) => frames::in_call(|| contain(|| waker.wake())),
            Self::Call(call) => frames::in_call(|| contain(call)),
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

/// Boxed, since most strands of a large number are waited for by nobody.
#[derive(Default)]
struct Waiters {
    heap: BinaryHeap<Entry>,
    serial: u64,
}

/// The counter of one strand. What is written seldom comes last: see the strand.
#[repr(C)]
pub(crate) struct Timeline {
    reached: AtomicU64,
    next: AtomicU64,
    waiters: Mutex<Option<Box<Waiters>>>,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            reached: AtomicU64::new(0),
            next: AtomicU64::new(NOBODY),
            waiters: Mutex::new(None),
        }
    }

    /// How many operations are done. Their writes are visible to the caller.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Counts one more operation as done. For the holder of the strand's turn only.
    #[inline]
    pub(crate) fn advance(&self) {
        let reached = self.reached.fetch_add(1, Ordering::AcqRel) + 1;
        if self.next.load(Ordering::Relaxed) <= reached {
            self.wake(reached);
        }
    }

    /// Whether somebody waits, or is about to: as of a moment ago.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.next.load(Ordering::Relaxed) != NOBODY
    }

    /// Somebody is about to wait: whoever runs the strand need not leave it alone for efficiency.
    #[inline]
    pub(crate) fn hurry(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    /// Leaves `waiter` until `target` is reached, or gives it back if that is already so.
    pub(crate) fn register(&self, target: u64, waiter: Waiter) -> Result<Ticket, Waiter> {
        let mut waiters = self.waiters.lock();
        let waiters = waiters.get_or_insert_default();
        waiters.serial += 1;
        let ticket = Ticket {
            target,
            serial: waiters.serial,
        };
        waiters.heap.push(Entry { ticket, waiter });
        self.announce(waiters);
        if self.reached.fetch_add(0, Ordering::AcqRel) < target {
            return Ok(ticket);
        }
        match self.remove(waiters, ticket) {
            Some(waiter) => Err(waiter),
            None => Ok(ticket),
        }
    }

    /// Takes a waiter back, unless it has been woken.
    pub(crate) fn unregister(&self, ticket: Ticket) -> Option<Waiter> {
        let mut waiters = self.waiters.lock();
        self.remove(waiters.as_mut()?, ticket)
    }

    fn remove(&self, waiters: &mut Waiters, ticket: Ticket) -> Option<Waiter> {
        if waiters
            .heap
            .peek()
            .is_some_and(|first| first.ticket == ticket)
        {
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

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn with_lock_held<R>(&self, f: impl FnOnce() -> R) -> R {
        let _waiters = self.waiters.lock();
        f()
    }

    #[cold]
    fn wake(&self, reached: u64) {
        let mut more = true;
        while more {
            let mut lock = self.waiters.lock();
            let Some(waiters) = lock.as_mut() else {
                return self.next.store(NOBODY, Ordering::Relaxed);
            };
            let waiter = pop_due(waiters, reached);
            self.announce(waiters);
            more = waiters
                .heap
                .peek()
                .is_some_and(|entry| entry.ticket.target <= reached);
            drop(lock);
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
    }

    /// Tells `advance` of the smallest target. The caller holds the lock.
    fn announce(&self, waiters: &Waiters) {
        let next = waiters
            .heap
            .peek()
            .map_or(NOBODY, |first| first.ticket.target);
        self.next.store(next, Ordering::Relaxed);
    }
}

fn pop_due(waiters: &mut Waiters, reached: u64) -> Option<Waiter> {
    let due = waiters.heap.peek()?.ticket.target <= reached;
    due.then(|| waiters.heap.pop())
        .flatten()
        .map(|entry| entry.waiter)
}
