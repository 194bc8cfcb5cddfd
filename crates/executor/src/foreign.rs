//! Threads that another language made, and the operations they run.
//!
//! Such a thread asks for its next operation, runs it in its own language, says how it ended, and
//! asks again. So no frame of ours lies under code of that language. Between operations it holds
//! the turn of the strand it works for; asking never blocks, [`rest`](ForeignThread::rest) does.
//!
//! The lane cannot make such threads itself: it asks its recruiter, as the lanes of native threads
//! would spawn. The first one is made by whoever first submits such an operation, since that is
//! where an error can still be raised.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::executor::{Executor, Loose, Shared};
use crate::failure::{Failure, Fault};
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
    /// Whether the strand at hand had more behind that when it was taken.
    more: bool,
    /// Operations that the turn may still run before others get theirs.
    left: u32,
    standing: Standing,
    /// Lists and frames belong to a thread.
    here: std::marker::PhantomData<*const ()>,
}

/// As what the lane counts the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Searching,
    Busy,
    CountedOut,
}

/// The operation that the thread runs.
enum At {
    Strand { n: u64 },
    Loose(Box<Loose>),
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
            more: false,
            left: 0,
            standing: Standing::Searching,
            here: std::marker::PhantomData,
        }
    }

    fn lane(&self) -> &Arc<Lane> {
        &self.shared.foreign
    }

    /// The next operation, if there is one. Never blocks.
    #[expect(
        clippy::should_implement_trait,
        reason = "the type of what is taken varies from call to call"
    )]
    pub fn next<T: Operation>(&mut self) -> Option<Next<T>> {
        if self.shared.is_inherited() || self.standing == Standing::CountedOut {
            return None;
        }
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
        if self.standing == Standing::Busy {
            self.find_own();
            if self.turn.is_some() {
                return Some(Found::Turn);
            }
        }
        self.left = BATCH;
        let job = self.lane().try_take()?;
        self.standing = Standing::Busy;
        match job {
            Job::Turn(turn) => {
                self.turn = Some(turn);
                Some(Found::Turn)
            }
            Job::Loose(mut loose) => {
                let operation = loose.take::<T>();
                self.lane().note_progress();
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
        self.lane().note_progress();
        frames::enter(Frame {
            strand: turn.strand().id(),
            n: taken.n,
        });
        self.turn = Some(turn);
        self.at = Some(At::Strand { n: taken.n });
        self.more = taken.more;
        match taken.failure {
            Some(failure) => Next::Skip(taken.operation, failure),
            None => Next::Run(taken.operation),
        }
    }

    /// Whether the strand at hand has more behind the operation that is being run.
    #[must_use]
    pub fn has_more(&self) -> bool {
        let grew = |turn: &Turn| turn.strand().pending() > 1;
        self.turn
            .as_ref()
            .is_some_and(|turn| self.more || grew(turn))
    }

    /// Tells a trace that the operation that [`next`](Self::next) gave out fails by this, where its
    /// strand does not.
    pub fn tell(&self, fault: Fault) {
        if let (Some(At::Strand { n }), Some(turn)) = (&self.at, &self.turn) {
            turn.log_fault(*n, fault);
        }
    }

    /// Ends the operation that [`next`](Self::next) gave out.
    pub fn finish(&mut self, outcome: Result<(), Fault>) {
        let Some(at) = self.at.take() else { return };
        frames::leave();
        if self.shared.is_inherited() {
            // A fork inside the operation: its end is the parent's to tell.
            let _ = ManuallyDrop::new(at);
            return;
        }
        match (at, &self.turn) {
            (At::Strand { n }, Some(turn)) => turn.finish(n, outcome),
            (At::Strand { .. }, None) => unreachable!("the turn stays while its operation runs"),
            (At::Loose(loose), _) => drop(loose),
        }
    }

    /// Blocks until there may be something to do. `false`: leave.
    pub fn rest(&mut self) -> bool {
        if self.shared.is_inherited() || self.standing == Standing::CountedOut {
            return false;
        }
        if self.looks_busy() {
            return true;
        }
        let stays = self.lane().rest();
        self.standing = if stays {
            Standing::Searching
        } else {
            Standing::CountedOut
        };
        stays
    }

    /// Whether the thread has a turn at an operation. If not, it searches from here on.
    fn looks_busy(&mut self) -> bool {
        loop {
            if let Some(turn) = self.turn.take() {
                self.turn = self.work_through(turn);
                if self.turn.is_some() {
                    return true;
                }
            }
            if self.standing == Standing::Searching {
                return false;
            }
            self.find_own();
        }
    }

    /// A busy thread takes up a turn of its own, or begins to search.
    fn find_own(&mut self) {
        self.left = BATCH;
        self.turn = self.lane().next_local();
        if self.turn.is_none() {
            self.lane().search();
            self.standing = Standing::Searching;
        }
    }
}

enum Found<T> {
    Turn,
    Loose(T),
}

impl Drop for ForeignThread {
    /// A thread that ends early leaves its strand to the others.
    fn drop(&mut self) {
        self.finish(Ok(()));
        if self.shared.is_inherited() {
            let _ = ManuallyDrop::new(self.turn.take());
            return;
        }
        let mut turns = match self.standing {
            Standing::CountedOut => VecDeque::new(),
            standing => self.lane().leave(standing == Standing::Searching),
        };
        turns.extend(self.turn.take());
        turns.into_iter().for_each(Turn::pass);
    }
}
