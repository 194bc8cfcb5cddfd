//! Inline strands: their operations are run by the threads that submit them.
//!
//! A thread that submits to an inline strand queues a *visit* and waits for the strand's turn; when
//! the turn reaches the visit, whoever runs it hands it over through the visit's *baton*. The
//! thread runs its operation with the turn in hand and then passes it on. Waits for other strands
//! lie in the queue as on any strand, so they hold up later visits without holding a thread.
//!
//! # Protocol of a baton
//! One slot under a lock: empty, then exactly one of
//! * given: it holds the turn; the visitor takes it and owns it.
//! * withdrawn: the visitor gave up first; who comes with the turn keeps it and passes the number.
//! * dropped: the executor shut down.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use crate::executor::Refused;
use crate::failure::{Failure, Fault};
use crate::frames::{self, Frame};
use crate::operation::{Kind, Operation};
use crate::point::{Blocked, Deadlock, Point, Position};
use crate::strand::{Start, Strand, Turn};
use crate::sync::{Mutex, SPINS, Thread, current, park_until, pause};
use crate::trace::Description;

pub(crate) struct Baton {
    slot: Mutex<Slot>,
    visitor: Thread,
}

enum Slot {
    Empty,
    Given(Turn),
    Withdrawn,
    Dropped(Arc<Failure>),
}

impl Baton {
    /// Hands the turn to the visitor; gives it back if that has withdrawn.
    pub(crate) fn give(&self, turn: Turn) -> Option<Turn> {
        let mut slot = self.slot.lock();
        if matches!(*slot, Slot::Withdrawn) {
            return Some(turn);
        }
        *slot = Slot::Given(turn);
        drop(slot);
        self.visitor.unpark();
        None
    }

    fn drop_visit(&self, why: &Arc<Failure>) {
        let mut slot = self.slot.lock();
        if matches!(*slot, Slot::Empty) {
            *slot = Slot::Dropped(why.clone());
        }
        drop(slot);
        self.visitor.unpark();
    }

    fn has_news(&self) -> bool {
        !matches!(*self.slot.lock(), Slot::Empty)
    }
}

/// The record of a visit in the strand's queue.
pub(crate) struct Visit(pub(crate) Arc<Baton>);

impl Operation for Visit {
    const KIND: Kind = Kind::Visit;

    fn run(self) -> Result<(), Fault> {
        Ok(())
    }

    fn skip(self, why: &Arc<Failure>) {
        self.0.drop_visit(why);
    }
}

/// A thread that waits for its turn on an inline strand. Dropping it withdraws the operation.
#[must_use]
pub struct Visitor {
    strand: Arc<Strand>,
    baton: Arc<Baton>,
    point: Point,
    blocked: Option<Blocked>,
}

impl Strand {
    /// Queues an operation that the calling thread will run itself.
    ///
    /// # Errors
    /// As for [`push`](Strand::push), and [`Deadlock`] (inner) if the turn could never come because
    /// the caller is inside an operation that the strand waits for.
    pub fn visit(self: &Arc<Self>) -> Result<Result<Visitor, Deadlock>, Refused> {
        let visit = self.visit_after([])?;
        Ok(visit.map(|(visitor, start)| {
            drop(start);
            visitor
        }))
    }

    /// As [`visit`](Self::visit), for an operation that waits for `positions`. The strand goes on once
    /// the second value is dropped, where no lock is held.
    ///
    /// # Errors
    /// As for [`visit`](Self::visit).
    pub fn visit_after(
        self: &Arc<Self>,
        positions: impl IntoIterator<Item = Position>,
    ) -> Result<Result<(Visitor, Start), Deadlock>, Refused> {
        let baton = Arc::new(Baton {
            slot: Mutex::new(Slot::Empty),
            visitor: current(),
        });
        let (point, start) = self.push_at_after(positions, Visit(baton.clone()))?;
        // Looked at only now that its place in the queue is fixed, so that nobody who waits for
        // the caller can get in between unseen.
        let before = point.at(point.n() - 1);
        let mut visitor = Visitor {
            strand: self.clone(),
            baton,
            point,
            blocked: None,
        };
        match Blocked::on(before.position()) {
            Ok(blocked) => visitor.blocked = blocked,
            Err(deadlock) => return Ok(Err(deadlock)),
        }
        Ok(Ok((visitor, start)))
    }

    /// The operation of this strand that the calling thread is inside of.
    #[must_use]
    pub fn inside(&self) -> Option<u64> {
        frames::inside(self.id()).filter(|_| !self.is_inherited())
    }
}

impl Visitor {
    /// The point that the operation ends at.
    #[must_use]
    pub fn point(&self) -> &Point {
        &self.point
    }

    /// Blocks until it is this thread's turn (`true`) or `deadline` passed (`false`).
    pub fn until(&self, deadline: Option<Instant>) -> bool {
        for _ in 0..SPINS {
            if self.baton.has_news() {
                return true;
            }
            pause();
        }
        while !self.baton.has_news() {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            park_until(deadline);
        }
        true
    }

    /// Begins the operation.
    ///
    /// # Errors
    /// The failure that it is to be skipped for; its number has passed then.
    ///
    /// # Panics
    /// If it is not this thread's turn: call it after [`until`](Self::until) returned `true`.
    pub fn enter(self) -> Result<Inside, Arc<Failure>> {
        self.enter_as(|| Description::of_kind(Kind::Visit))
    }

    /// As [`enter`](Self::enter); tells a trace what the operation is, if there is one.
    ///
    /// # Errors
    /// As for [`enter`](Self::enter).
    ///
    /// # Panics
    /// As for [`enter`](Self::enter).
    pub fn enter_as(self, what: impl FnOnce() -> Description) -> Result<Inside, Arc<Failure>> {
        let slot = std::mem::replace(&mut *self.baton.slot.lock(), Slot::Withdrawn);
        let turn = match slot {
            Slot::Given(turn) => turn,
            Slot::Dropped(failure) => return Err(failure),
            Slot::Empty | Slot::Withdrawn => panic!("it is not this thread's turn"),
        };
        let n = self.point.n();
        let failure = turn.failure_at(n);
        turn.log_visit(what, failure.as_ref());
        match failure {
            Some(failure) => {
                turn.strand().meter.skip();
                turn.finish(n, Ok(()));
                turn.pass();
                Err(failure)
            }
            None => {
                turn.strand().meter.start();
                frames::enter(Frame {
                    strand: self.strand.id(),
                    n,
                });
                Ok(Inside {
                    turn: Some(turn),
                    n,
                    here: std::marker::PhantomData,
                })
            }
        }
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if self.strand.is_inherited() {
            return;
        }
        let slot = std::mem::replace(&mut *self.baton.slot.lock(), Slot::Withdrawn);
        if let Slot::Given(turn) = slot {
            turn.finish(self.point.n(), Ok(()));
            turn.pass();
        }
    }
}

/// A thread inside its own operation on an inline strand. Dropping it ends the operation.
#[must_use]
pub struct Inside {
    turn: Option<Turn>,
    n: u64,
    /// Frames belong to a thread.
    here: std::marker::PhantomData<*const ()>,
}

impl Inside {
    /// Tells a trace that the operation fails by this, where its strand does not.
    pub fn tell(&self, fault: Fault) {
        if let Some(turn) = &self.turn {
            turn.log_fault(self.n, fault);
        }
    }

    /// Ends the operation and passes the turn on.
    pub fn finish(mut self, outcome: Result<(), Fault>) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Result<(), Fault>) {
        if let Some(turn) = self.turn.take() {
            frames::leave();
            if turn.strand().is_inherited() {
                // A fork inside the operation: its end is the parent's to tell.
                let _ = ManuallyDrop::new(turn);
                return;
            }
            turn.finish(self.n, outcome);
            turn.pass();
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.end(Ok(()));
    }
}
