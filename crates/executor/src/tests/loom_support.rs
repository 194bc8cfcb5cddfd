//! What the loom models share.
//!
//! A model is a small program of which loom runs every interleaving, within a bound on how often
//! a thread is interrupted. Values that the program hands from one thread to another are stored
//! and loaded *relaxed*, so that only the executor's own orders can make them visible; and they
//! are looked at where the promise says that they are visible, never after joining the writer.
//! A lost wake-up needs no assertion: loom reports that the model hangs.

use std::sync::Arc;
use std::time::Instant;

use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::executor::{Config, Executor};
use crate::failure::Reason;
use crate::point::Point;
use crate::strand::{Leave, Runner, Turn};
use crate::{Inside, Kind, Native, Operation, Strand};

pub(super) use loom::thread::{JoinHandle, spawn};

/// Runs every interleaving of `model` with few interruptions: two, or as the environment says.
pub(super) fn check(model: impl Fn() + Send + Sync + 'static) {
    check_with_fewer(0, model);
}

/// As [`check`], for a model so large that it is run with `fewer` interruptions.
pub(super) fn check_with_fewer(fewer: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(2) - fewer);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// A number that threads hand to each other without ordering anything by it.
#[derive(Clone)]
pub(super) struct Cell(Arc<AtomicUsize>);

impl Cell {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(super) fn set(&self, value: usize) {
        self.0.store(value, Relaxed);
    }

    /// Goes from `before` to the next number; two threads that do so at once are found out.
    pub(super) fn step(&self, before: usize) {
        assert_eq!(self.get(), before);
        self.set(before + 1);
    }

    /// Counts one more, whoever else does.
    pub(super) fn tally(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Counts when it is dropped.
pub(super) struct Counted(pub(super) Cell);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tally();
    }
}

pub(super) fn config(workers: usize) -> Config {
    Config {
        workers,
        host_threads: workers,
        reporter: Box::new(|_| {}),
        recruiter: None,
    }
}

/// A whole executor with up to so many workers.
pub(super) fn executor(workers: usize) -> Executor {
    Executor::new(config(workers)).expect("models always get their threads")
}

/// An executor without threads: whatever needs one stays in the queue.
pub(super) fn unmanned() -> Executor {
    Executor::manned_by(config(4), None, None)
}

/// Runs the ready strands here, as a worker would, until none is left.
pub(super) fn work_off(executor: &Executor) {
    while let Some(turn) = executor.shared().native.steal(|_| true) {
        run(turn);
    }
}

/// Takes the strand that became ready first out of the queue, to be [`run`] by hand.
pub(super) fn take(executor: &Executor) -> Turn {
    executor
        .shared()
        .native
        .steal(|_| true)
        .expect("a strand is ready")
}

/// Runs a batch as a worker would.
pub(super) fn run(turn: Turn) {
    match turn.run(Runner::Worker) {
        Leave::Gone => {}
        Leave::Again(turn) => turn.dispatch(Kind::Native),
        Leave::Needs(turn, kind) => turn.dispatch(kind),
    }
}

/// An operation for a worker.
pub(super) fn native(function: impl FnOnce() + Send + 'static) -> impl Operation {
    Native::new(
        move || {
            function();
            Ok(())
        },
        None,
    )
}

/// An operation that fails.
pub(super) fn failing() -> impl Operation {
    Native::new(|| Err(Reason::Panicked("on purpose".into())), None)
}

/// Waits for `point`, outside of any operation.
pub(super) fn wait(point: &Point) {
    assert!(point.wait().expect("outside of operations").until(None));
}

/// Takes this thread's turn on an inline strand.
pub(super) fn enter(strand: &Arc<Strand>) -> Inside {
    let visitor = strand.visit().expect("open").expect("no deadlock");
    assert!(visitor.until(None));
    visitor.enter().expect("no failure")
}

/// A moment that has passed: a wait until then only looks.
pub(super) fn past() -> Option<Instant> {
    Some(Instant::now())
}
