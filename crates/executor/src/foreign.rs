//! Threads that another language made, and the operations they run.
//!
//! Such a thread asks for its next operation, runs it in its own language, says how it ended, and
//! asks again. So no frame of ours lies under code of that language. Between operations it holds
//! the turn of the strand it works for; asking never blocks, [`rest`](ForeignThread::rest) does.
//!
//! The lane cannot make such threads itself: whoever is able to asks
//! [`Executor::recruit`](crate::Executor::recruit) whether one more is needed. A thread asks that
//! before it runs an operation, so that one is always left to answer the next wake-up.

use std::sync::Arc;

use crate::executor::{Executor, Loose, Shared};
use crate::failure::{Epoch, Failure, Fault};
use crate::frames::{self, Frame};
use crate::lane::{Job, Lane};
use crate::operation::{Kind, Operation};
use crate::strand::{BATCH, Leave, Runner, Turn};

/// What a foreign thread is to do with an operation.
#[derive(Debug)]
pub enum Next<T> {
    /// Run it, then call [`ForeignThread::finish`].
    Run(T),
    /// Let it go because of this failure, then call [`ForeignThread::finish`].
    Skip(T, Arc<Failure>),
}

/// The calling thread as one of the foreign lane.
pub struct ForeignThread {
    shared: Arc<Shared>,
    turn: Option<Turn>,
    at: Option<At>,
    /// Operations that the turn may still run before others get theirs.
    left: u32,
    searching: bool,
    /// Lists and frames belong to a thread.
    here: std::marker::PhantomData<*const ()>,
}

/// The operation that the thread runs.
enum At {
    Strand { n: u64, epoch: Arc<Epoch> },
    Loose(Loose),
}

impl ForeignThread {
    /// The calling thread becomes the one that [`Executor::recruit`] counted.
    #[must_use]
    pub fn arrive(executor: &Executor) -> Self {
        let shared = executor.shared().clone();
        shared.foreign.arrive();
        Self {
            shared,
            turn: None,
            at: None,
            left: 0,
            searching: true,
            here: std::marker::PhantomData,
        }
    }

    fn lane(&self) -> &Arc<Lane> {
        &self.shared.foreign
    }

    /// The next operation, if there is one. Never blocks.
    pub fn next<T: Operation>(&mut self) -> Option<Next<T>> {
        loop {
            let Some(turn) = self.turn.take() else {
                match self.find::<T>()? {
                    Found::Turn => continue,
                    Found::Loose(operation) => return Some(Next::Run(operation)),
                }
            };
            if let Some(turn) = self.work_through(turn) {
                return Some(self.take_from(turn));
            }
        }
    }

    /// Gets a turn, or an operation without a strand.
    fn find<T: Operation>(&mut self) -> Option<Found<T>> {
        self.left = BATCH;
        if !self.searching {
            self.turn = self.lane().next_local();
            if self.turn.is_some() {
                return Some(Found::Turn);
            }
            self.lane().search();
            self.searching = true;
        }
        let job = self.lane().try_take()?;
        self.searching = false;
        match job {
            Job::Turn(turn) => {
                self.turn = Some(turn);
                Some(Found::Turn)
            }
            Job::Loose(mut loose) => {
                let operation = loose.take::<T>();
                self.at = Some(At::Loose(loose));
                frames::enter(Frame::LOOSE);
                operation.map(Found::Loose)
            }
        }
    }

    /// Runs what comes before the next foreign operation; gives the turn back when it is at one.
    fn work_through(&mut self, turn: Turn) -> Option<Turn> {
        if self.shared.is_closed() {
            self.shared.bury(turn);
            return None;
        }
        match turn.run(Runner::ForeignThread) {
            Leave::Gone => None,
            Leave::Needs(turn, Kind::Foreign) if self.left > 0 || !self.lane().has_ready() => {
                self.left = self.left.saturating_sub(1);
                Some(turn)
            }
            Leave::Needs(turn, kind) => {
                turn.dispatch(kind);
                None
            }
            Leave::Again(turn) => {
                turn.dispatch(Kind::Foreign);
                None
            }
        }
    }

    fn take_from<T: Operation>(&mut self, turn: Turn) -> Next<T> {
        let Some(taken) = turn.take::<T>() else {
            unreachable!("one type of foreign operation is submitted to an executor")
        };
        self.lane().publish();
        frames::enter(Frame { strand: turn.strand().id(), n: taken.n });
        self.turn = Some(turn);
        self.at = Some(At::Strand { n: taken.n, epoch: taken.epoch });
        match taken.failure {
            Some(failure) => Next::Skip(taken.operation, failure),
            None => Next::Run(taken.operation),
        }
    }

    /// Whether the strand at hand has more behind the operation that is being run.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.strand().pending() > 1)
    }

    /// Ends the operation that [`next`](Self::next) gave out.
    pub fn finish(&mut self, outcome: Result<(), Fault>) {
        let Some(at) = self.at.take() else { return };
        frames::leave();
        match (at, &self.turn) {
            (At::Strand { n, epoch }, Some(turn)) => turn.finish(n, &epoch, outcome),
            (At::Strand { .. }, None) => unreachable!("the turn stays while its operation runs"),
            (At::Loose(loose), _) => drop(loose),
        }
    }

    /// Blocks until there may be something to do. `false`: leave.
    ///
    /// Call it when [`next`](Self::next) found nothing.
    pub fn rest(&mut self) -> bool {
        let stays = self.lane().rest();
        self.searching = stays;
        stays
    }

    /// Whether a job waits, as of a moment ago.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.lane().is_waited_for()
    }
}

enum Found<T> {
    Turn,
    Loose(T),
}

impl Drop for ForeignThread {
    /// A thread that ends early leaves its strand to the others.
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        self.finish(Ok(()));
        if let Some(turn) = self.turn.take() {
            turn.dispatch(Kind::Foreign);
        }
        if self.searching {
            self.lane().depart();
        }
    }
}
