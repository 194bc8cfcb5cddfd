//! Points on timelines, and waiting for them.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::deadlock::{self, Edge};
use crate::failure::{Epoch, Failure};
use crate::frames;
use crate::strand::{Strand, Turn};
use crate::sync::{SPINS, current, park_until, pause, yield_now};
use crate::timeline::{Ticket, Waiter};

/// A place on a strand's timeline, for order alone: whatever failed before it.
#[derive(Clone)]
pub struct Position {
    strand: Arc<Strand>,
    n: u64,
}

impl Position {
    /// Behind operation `n` of `strand`.
    #[must_use]
    pub fn new(strand: Arc<Strand>, n: u64) -> Self {
        Self { strand, n }
    }

    /// The strand whose timeline it is on.
    #[must_use]
    pub fn strand(&self) -> &Arc<Strand> {
        &self.strand
    }

    /// How many operations are before it.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Moves it back on the same timeline, to behind operation `n`.
    pub fn move_to(&mut self, n: u64) {
        self.n = n;
    }

    /// Whether everything before it is done; its writes are then visible to the caller.
    #[inline]
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.strand.timeline.reached() >= self.n
    }

    /// Whether the operation right before it is the next one of its timeline to be done.
    #[must_use]
    pub fn is_next(&self) -> bool {
        self.strand.timeline.reached() + 1 == self.n
    }

    /// Begins to wait.
    ///
    /// # Errors
    /// [`Deadlock`] inside an operation that it would wait for.
    pub fn wait(&self) -> Result<Wait<'_>, Deadlock> {
        Ok(Wait {
            position: self,
            ticket: None,
            _blocked: Blocked::on(self)?,
        })
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({}, {})", self.strand.name(), self.n)
    }
}

/// A point on a strand's timeline: everything submitted before it, and nothing after.
#[derive(Clone)]
pub struct Point {
    position: Position,
    epoch: Arc<Epoch>,
}

/// A wait that could never end: directly or through the waits of other operations, it would wait
/// for the operation that it is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock;

impl Point {
    pub(crate) fn new(strand: Arc<Strand>, epoch: Arc<Epoch>, n: u64) -> Self {
        Self {
            position: Position::new(strand, n),
            epoch,
        }
    }

    /// The place, without the epoch.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The strand whose timeline it is on.
    #[must_use]
    pub fn strand(&self) -> &Arc<Strand> {
        self.position.strand()
    }

    /// How many operations are before it.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.position.n
    }

    pub(crate) fn into_parts(self) -> (Position, Arc<Epoch>) {
        (self.position, self.epoch)
    }

    /// The same timeline at operation `n` of the same epoch.
    #[must_use]
    pub fn at(&self, n: u64) -> Self {
        Self::new(self.strand().clone(), self.epoch.clone(), n)
    }

    /// Whether everything before it is done; its writes are then visible to the caller.
    #[inline]
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.position.is_reached()
    }

    /// The failure that it covers. Complete once the point is reached.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        self.epoch.failure_at(self.n())
    }

    /// Whether that is the failure of the operation that ends here, and not of one before it.
    #[must_use]
    pub fn is_first_failed(&self) -> bool {
        let before = self.n().checked_sub(1);
        let failed_before = before.is_some_and(|n| self.epoch.failure_at(n).is_some());
        self.failure().is_some() && !failed_before
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn is_in_epoch_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.epoch, &other.epoch)
    }

    /// Calls `f` with the failure, if nobody but this point and its owner's other parts can reach it:
    /// the strand has moved on to another epoch, and no other point is left of this one.
    pub fn with_sole_failure<R>(&self, f: impl FnOnce(&Failure) -> R) -> Option<R> {
        if Arc::strong_count(&self.epoch) > 1 {
            return None;
        }
        self.epoch.with_sole_failure(f)
    }

    /// Acknowledges the failure of this point's epoch for its strand: what was submitted before
    /// this call is skipped, what is submitted after it runs.
    pub fn acknowledge(&self) {
        if let Some(failure) = self.epoch.failure() {
            failure.acknowledge();
            self.strand().acknowledge(&self.epoch);
        }
    }

    /// Begins to wait.
    ///
    /// # Errors
    /// [`Deadlock`] inside an operation that the point would wait for.
    pub fn wait(&self) -> Result<Wait<'_>, Deadlock> {
        self.position.wait()
    }

    /// Calls `call` once the point is reached; at once if it is already. `call` must be brief and
    /// may run on any thread, also on one that holds the strand's turn: it must not wait. In a
    /// forked child it is dropped.
    pub fn when_reached(&self, call: impl FnOnce() + Send + 'static) {
        if self.strand().is_inherited() {
            return;
        }
        let call = Waiter::Call(Box::new(call));
        if let Err(Waiter::Call(call)) = self.strand().timeline.register(self.n(), call) {
            call();
        }
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Point({}, {})", self.strand().name(), self.n())
    }
}

/// A host thread's wait for a point. Dropping it ends the wait.
pub struct Wait<'a> {
    position: &'a Position,
    ticket: Option<Ticket>,
    _blocked: Option<Blocked>,
}

/// What others must know while an operation waits.
pub(crate) struct Blocked {
    edge: Edge,
    lane: Option<Arc<crate::lane::Lane>>,
}

impl Blocked {
    /// The calling thread will wait for `position`; `None` if that concerns nobody, because it is
    /// reached or because the thread is not inside an operation.
    pub(crate) fn on(position: &Position) -> Result<Option<Self>, Deadlock> {
        if position.is_reached() || !frames::are_inside() {
            return Ok(None);
        }
        Ok(Some(Self::new(deadlock::enter(position)?)))
    }

    fn new(edge: Edge) -> Self {
        let shared = edge.shared();
        let lanes = [&shared.native, &shared.host, &shared.foreign];
        let lane = lanes.into_iter().find(|lane| lane.is_mine()).cloned();
        if let Some(lane) = &lane {
            lane.block();
        }
        Self { edge, lane }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(lane) = &self.lane
            && !self.edge.shared().is_inherited()
        {
            lane.unblock();
        }
    }
}

impl Wait<'_> {
    /// Blocks until it is reached (`true`) or `deadline` passed (`false`). May be called
    /// again after it returned `false`.
    pub fn until(&mut self, deadline: Option<Instant>) -> bool {
        if self.ticket.is_none() {
            if self.look() {
                return true;
            }
            self.help();
        }
        // Anew each time, since the caller may be another thread than the last time.
        self.forget();
        let waiter = Waiter::Thread(current());
        match self
            .position
            .strand
            .timeline
            .register(self.position.n, waiter)
        {
            Ok(ticket) => self.ticket = Some(ticket),
            Err(_) => return true,
        }
        while !self.position.is_reached() {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            park_until(deadline);
        }
        self.ticket = None;
        true
    }

    fn forget(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !self.position.strand.is_inherited()
        {
            let _ = self.position.strand.timeline.unregister(ticket);
        }
    }

    /// Looks for a moment before the thread goes to sleep.
    fn look(&self) -> bool {
        if self.position.is_reached() {
            return true;
        }
        self.position.strand.timeline.hurry();
        for round in 0..4 * SPINS {
            if self.position.is_reached() {
                return true;
            }
            if round < SPINS { pause() } else { yield_now() }
        }
        self.position.is_reached()
    }

    /// Runs the strand's next operations here while they are brief, if no worker has come yet.
    fn help(&self) {
        let strand = &self.position.strand;
        // Only then: a strand that is put back has lost its place in the line.
        let wanted = |turn: &Turn| Arc::ptr_eq(turn.strand(), strand) && turn.is_brief();
        if let Some(turn) = strand.shared.native.steal(wanted) {
            turn.pass();
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// An asynchronous wait for a point.
#[derive(Debug)]
pub struct AsyncWait {
    point: Point,
    ticket: Option<Ticket>,
}

impl AsyncWait {
    /// Waits for `point`.
    #[must_use]
    pub fn new(point: Point) -> Self {
        Self {
            point,
            ticket: None,
        }
    }

    /// The point.
    #[must_use]
    pub fn point(&self) -> &Point {
        &self.point
    }
}

impl std::future::Future for AsyncWait {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.forget();
        let waiter = Waiter::Task(context.waker().clone());
        match self
            .point
            .strand()
            .timeline
            .register(self.point.n(), waiter)
        {
            Ok(ticket) => {
                self.ticket = Some(ticket);
                Poll::Pending
            }
            Err(_) => Poll::Ready(()),
        }
    }
}

impl AsyncWait {
    fn forget(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !self.point.strand().is_inherited()
        {
            let _ = self.point.strand().timeline.unregister(ticket);
        }
    }
}

impl Drop for AsyncWait {
    fn drop(&mut self) {
        self.forget();
    }
}
