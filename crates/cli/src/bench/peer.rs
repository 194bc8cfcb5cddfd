//! What is compared, as the measures see it: something that makes queues which run closures in order.

use std::sync::{Condvar, Mutex, PoisonError};

/// Ours, or what a Rust user would build instead.
pub trait Peer: Sized {
    /// Runs what is submitted to it in order.
    type Queue: Queue;

    /// How many queues the measure of many queues makes: fewer where each one is a thread.
    const MANY: usize = 10_000;

    /// Starts what all queues share, such as a pool of threads.
    fn start() -> Self;

    /// Makes a queue that is independent of all others.
    fn queue(&self) -> Self::Queue;
}

/// An ordered queue of closures. Clones are handles of the same queue.
pub trait Queue: Clone + Send + 'static {
    /// A mark in a queue that another queue can wait for, once.
    type Event;

    /// Runs `operation` after everything submitted before.
    fn submit(&self, operation: impl FnOnce() + Send + 'static);

    /// Waits until everything submitted before has run.
    fn drain(&self);

    /// Submits one brief operation and waits for it, in the cheapest way that the peer offers.
    fn round_trip(&self) {
        self.drain();
    }

    /// Marks what was submitted before.
    fn record(&self) -> Self::Event;

    /// Holds back what is submitted later until the mark is reached.
    fn wait(&self, event: Self::Event);

    /// Holds back what is submitted later until the returned closure is called.
    fn hold(&self) -> Box<dyn FnOnce()>;
}

/// A flag that a thread can sleep on.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Lets everybody through, now and later.
    pub fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    /// Sleeps until the gate is open.
    pub fn pass(&self) {
        let guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(guard, |open| !*open));
    }
}
