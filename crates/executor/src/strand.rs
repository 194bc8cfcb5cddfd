//! Strands: how a stream is scheduled.
//!
//! A strand is a queue of operations of which at most one runs at a time, and no thread is tied to
//! it. Running a strand is a right that exists at most once, and that is a value: the [`Turn`].
//!
//! # Protocol
//! The *inbox* (under its lock) takes submissions: it numbers them, from 1, and knows whether the
//! strand is *active*, which means that its turn exists. The *head* holds the operations that are
//! being run; only the holder of the turn locks it.
//!
//! * **idle**: not active, both queues hold no work. A push that finds this creates the turn.
//! * **ready**: the turn lies in a lane's queue, or in a thread's own list.
//! * **running**: a thread holds the turn. It swaps the inbox's queue for its empty one, runs a
//!   batch, and puts the turn back to the end of the lane if more is left.
//! * **parked**: the turn lies among the waiters of the timeline that the next operation waits for.
//! * **visited**: the turn lies with a thread that runs its own operation on an inline strand.
//!
//! The turn ends, and the strand is idle again, only under the inbox's lock with the inbox empty;
//! so a push either is seen by the holder of the turn or creates the next one.
//!
//! Order of an operation's end: it and what it captured are dropped; if it failed, its epoch fails;
//! the timeline advances (release); waiters wake. Whoever sees the number sees all of that.
//!
//! Lock order: deadlock walk, head, inbox. The head of an idle strand may be locked under the
//! inbox's lock: whoever still holds it let the strand go idle, and does not come back for the
//! inbox. Both may be locked under the lock of the lane whose queue the strand lies in: nobody runs
//! it then. Nothing is dropped, woken or called under the inbox's lock.
//!
//! Acknowledging a failure gives the inbox a new epoch. On an idle strand the head gets it at once;
//! else a record of it is queued and reaches the head in order: what was submitted before it is
//! skipped, what comes after it runs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::executor::{Refused, Shared, TARGET};
use crate::failure::{Epoch, Failure, Fault, Origin, Reason, Site, contain};
use crate::frames::{self, Frame};
use crate::lane::{self, Job, Lane};
use crate::meter::{Depth, Meter, Stats};
use crate::operation::{Kind, Operation, Operations};
use crate::point::{Point, Position};
use crate::sync::{Mutex, SPINS, pause};
use crate::timeline::{Timeline, Waiter};
use crate::trace::{Description, Note, Noted};
use crate::visit::{Baton, Visit};

/// Operations that one turn runs before the others get theirs.
pub(crate) const BATCH: u32 = 32;
/// How many records a search for the next operation's kind looks at.
const LOOKED_AT: usize = 4;
/// Pauses before a worker looks at a strand again that has run dry: about ten microseconds.
const LINGERS: u32 = 4 * SPINS;

/// An ordered queue of operations. See the module's protocol.
///
/// The order of its parts matters: for every operation, who runs the strand writes the head and the
/// front of the timeline, and who submits writes the inbox and reads what lies in front of it. What is
/// between them is touched once a turn at most, and is as long as a cache line.
#[repr(C)]
pub struct Strand {
    head: Mutex<Head>,
    pub(crate) timeline: Timeline,
    pub(crate) meter: Meter,
    label: Option<Box<Label>>,
    pub(crate) shared: Arc<Shared>,
    id: u64,
    inbox: Mutex<Inbox>,
}

/// What few strands have.
pub(crate) struct Label {
    name: Box<str>,
    inline: bool,
}

impl Label {
    pub(crate) fn new(name: &str, inline: bool) -> Self {
        let name = name.into();
        Self { name, inline }
    }
}

struct Inbox {
    operations: Operations,
    submitted: u64,
    epoch: Arc<Epoch>,
    /// What the wait records in the queue and at the head wait for, in order.
    #[expect(
        clippy::box_collection,
        reason = "one word in each of ten thousand strands"
    )]
    waits: Option<Box<VecDeque<Awaited>>>,
    depth: Depth,
    active: bool,
    orphaned: bool,
}

struct Head {
    operations: Operations,
    epoch: Arc<Epoch>,
    /// What is known of the operation at hand, if there is a trace.
    noted: Option<Box<Noted>>,
}

/// What a wait of this strand waits for.
struct Awaited {
    /// The number of the wait. Several may have the same.
    n: u64,
    position: Position,
    /// If a failure passes on: the epoch that it would be in.
    epoch: Option<Arc<Epoch>>,
}

impl Awaited {
    fn failure(&self) -> Option<Arc<Failure>> {
        self.epoch.as_ref()?.failure_at(self.position.n())
    }
}

/// Stands for an [`Awaited`] in the queue.
struct WaitRecord;

impl Operation for WaitRecord {
    const KIND: Kind = Kind::Wait;

    fn run(self) -> Result<(), Fault> {
        Ok(())
    }
}

/// What follows belongs to this epoch.
struct EpochRecord(Arc<Epoch>);

impl Operation for EpochRecord {
    const KIND: Kind = Kind::Epoch;

    fn run(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Strand {
    pub(crate) fn new(shared: Arc<Shared>, id: u64, label: Option<Label>) -> Arc<Self> {
        let epoch = Epoch::new();
        Arc::new(Self {
            shared,
            timeline: Timeline::new(),
            id,
            label: label.map(Box::new),
            meter: Meter::default(),
            inbox: Mutex::new(Inbox {
                operations: Operations::default(),
                submitted: 0,
                epoch: epoch.clone(),
                waits: None,
                depth: Depth::default(),
                active: false,
                orphaned: false,
            }),
            head: Mutex::new(Head {
                operations: Operations::default(),
                epoch,
                noted: None,
            }),
        })
    }

    /// A number that no other strand of the executor has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name it was given, or one made of its number.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.label {
            Some(label) => label.name.to_string(),
            None => format!("stream-{}", self.id),
        }
    }

    /// Submits an operation and returns its number.
    ///
    /// # Errors
    /// [`Refused`] if the executor is shut down, was inherited by a fork, or cannot get the thread
    /// that the operation needs. Nothing is submitted then.
    #[inline]
    pub fn push<T: Operation>(self: &Arc<Self>, operation: T) -> Result<u64, Refused> {
        let (n, start) = self.submit(Vec::new(), operation, |inbox| inbox.submitted)?;
        drop(start);
        Ok(n)
    }

    /// As [`push`](Self::push), for an operation that waits for `positions`, whatever failed there.
    /// Blocks nobody. The strand goes on once the second value is dropped, where no lock is held.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    #[inline]
    pub fn push_after<T: Operation>(
        self: &Arc<Self>,
        positions: impl IntoIterator<Item = Position>,
        operation: T,
    ) -> Result<(u64, Start), Refused> {
        let awaited = self.ahead_of_push(positions)?;
        self.submit(awaited, operation, |inbox| inbox.submitted)
    }

    /// As [`push`](Self::push); returns the point that the operation ends at.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    #[inline]
    pub fn push_at<T: Operation>(self: &Arc<Self>, operation: T) -> Result<Point, Refused> {
        let (n, epoch) = self.submit_at(Vec::new(), operation)?.0;
        Ok(Point::new(self.clone(), epoch, n))
    }

    /// As [`push_after`](Self::push_after); returns the point that the operation ends at.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    #[inline]
    pub fn push_at_after<T: Operation>(
        self: &Arc<Self>,
        positions: impl IntoIterator<Item = Position>,
        operation: T,
    ) -> Result<(Point, Start), Refused> {
        let awaited = self.ahead_of_push(positions)?;
        let ((n, epoch), start) = self.submit_at(awaited, operation)?;
        Ok((Point::new(self.clone(), epoch, n), start))
    }

    #[inline]
    fn submit_at<T: Operation>(
        self: &Arc<Self>,
        awaited: Vec<Position>,
        operation: T,
    ) -> Result<((u64, Arc<Epoch>), Start), Refused> {
        let read = |inbox: &Inbox| (inbox.submitted, inbox.epoch.clone());
        self.submit(awaited, operation, read)
    }

    #[inline]
    fn submit<T: Operation, R>(
        self: &Arc<Self>,
        awaited: Vec<Position>,
        operation: T,
        read: impl FnOnce(&Inbox) -> R,
    ) -> Result<(R, Start), Refused> {
        self.shared.admit(T::KIND)?;
        let note = self.shared.log.note(self, &operation);
        let mut inbox = self.inbox.lock();
        let waits = !awaited.is_empty();
        if waits {
            inbox.push_wait(awaited.into_iter().map(|position| (position, None)));
        }
        if let Some(note) = note {
            inbox.operations.push(note);
        }
        inbox.submitted += 1;
        inbox.operations.push(operation);
        inbox.deepen(1 + u16::from(waits), &self.timeline);
        let submitted = read(&inbox);
        let activated = !std::mem::replace(&mut inbox.active, true);
        drop(inbox);
        let kind = if waits { Kind::Wait } else { T::KIND };
        Ok((submitted, self.start(activated, kind)))
    }

    /// Those of `positions` that an operation has to wait for. Found without the inbox's lock, as the
    /// iterator is not ours.
    #[inline]
    fn ahead_of_push(
        self: &Arc<Self>,
        positions: impl IntoIterator<Item = Position>,
    ) -> Result<Vec<Position>, Refused> {
        let awaited: Vec<_> = positions
            .into_iter()
            .filter(|position| !Arc::ptr_eq(self, position.strand()) && !position.is_reached())
            .collect();
        if awaited
            .iter()
            .any(|position| position.strand().is_inherited())
        {
            return Err(Refused::Inherited);
        }
        Ok(awaited)
    }

    /// Makes everything submitted from here on wait for `point`, without blocking anybody.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn wait_for(self: &Arc<Self>, point: &Point) -> Result<(), Refused> {
        self.shared.admit(Kind::Wait)?;
        if point.strand().is_inherited() && !point.is_reached() {
            return Err(Refused::Inherited);
        }
        let own = Arc::ptr_eq(self, point.strand());
        if own || (point.is_reached() && point.failure().is_none()) {
            return Ok(());
        }
        let (position, epoch) = point.clone().into_parts();
        let mut inbox = self.inbox.lock();
        inbox.push_wait([(position, Some(epoch))]);
        inbox.deepen(1, &self.timeline);
        let activated = !std::mem::replace(&mut inbox.active, true);
        drop(inbox);
        drop(self.start(activated, Kind::Wait));
        Ok(())
    }

    /// The point that everything submitted so far is before.
    ///
    /// Inside an operation of an inline strand, that is the operation itself. In a forked child, it
    /// is a point that is never reached.
    #[must_use]
    pub fn point(self: &Arc<Self>) -> Point {
        if self.is_inherited() {
            return Point::new(self.clone(), Epoch::new(), u64::MAX);
        }
        let enclosing = frames::inside(self.id).filter(|_| self.is_inline());
        let inbox = self.inbox.lock();
        let n = enclosing.unwrap_or(inbox.submitted);
        Point::new(self.clone(), inbox.epoch.clone(), n)
    }

    /// Operations submitted and not done, waits included.
    #[must_use]
    pub fn pending(&self) -> u64 {
        if self.is_inherited() {
            return 0;
        }
        let submitted = self.inbox.lock().submitted;
        submitted.saturating_sub(self.timeline.reached())
    }

    /// What it has done so far, each figure as of a moment ago.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.meter.stats();
        if self.is_inherited() {
            return stats;
        }
        let mut inbox = self.inbox.lock();
        inbox.look(&self.timeline);
        stats.submitted = inbox.submitted;
        stats.deepest = inbox.depth.deepest();
        drop(inbox);
        stats.ended = self.timeline.reached().min(stats.submitted);
        stats
    }

    /// Acknowledges the failure of `epoch`: what was submitted before this call is skipped, what is
    /// submitted after it runs. Does nothing if that was done before.
    pub(crate) fn acknowledge(&self, epoch: &Arc<Epoch>) {
        if self.is_inherited() {
            return;
        }
        let mut inbox = self.inbox.lock();
        if !Arc::ptr_eq(&inbox.epoch, epoch) {
            return;
        }
        let next = Epoch::new();
        let old = std::mem::replace(&mut inbox.epoch, next.clone());
        let older = if inbox.active {
            inbox.operations.push(EpochRecord(next));
            None
        } else {
            Some(std::mem::replace(&mut self.head.lock().epoch, next))
        };
        drop(inbox);
        drop((old, older));
    }

    /// The failure of the epoch that new operations would join.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        if self.is_inherited() {
            return None;
        }
        let epoch = self.inbox.lock().epoch.clone();
        epoch.failure()
    }

    /// Acknowledges the current failure, if it is the one that `wanted` names. `false`: it is not.
    pub fn acknowledge_if(&self, wanted: impl FnOnce(&Failure) -> bool) -> bool {
        if self.is_inherited() {
            return false;
        }
        let epoch = self.inbox.lock().epoch.clone();
        match epoch.failure() {
            Some(failure) if wanted(&failure) => {
                failure.acknowledge();
                self.acknowledge(&epoch);
                true
            }
            _ => false,
        }
    }

    /// Calls `f` with the failure of an idle strand that nobody but the caller can reach, if nobody
    /// but the strand holds that failure. Whoever owns the strand then owns the failure, as a
    /// garbage collector counts.
    pub fn with_sole_failure<R>(self: &Arc<Self>, f: impl FnOnce(&Failure) -> R) -> Option<R> {
        if self.is_inherited() || Arc::strong_count(self) > 1 {
            return None;
        }
        // Nobody else can reach the locks either, so nobody waits for `f`.
        let inbox = self.inbox.lock();
        // The inbox's and the head's.
        if Arc::strong_count(&inbox.epoch) > 2 {
            return None;
        }
        inbox.epoch.with_sole_failure(f)
    }

    /// Skips the operation at the head, inside of which what it captured is dropped.
    fn skip_next(&self, head: &mut Head, n: u64, why: &Arc<Failure>) {
        frames::enter(Frame { strand: self.id, n });
        head.operations.skip_next(why);
        frames::leave();
    }

    /// Fails the current epoch at operation `n`, which the caller is running.
    pub(crate) fn fail(&self, epoch: &Epoch, n: u64, fault: Fault) {
        let failure = self.failure_of(n, fault);
        if (failure.origin.strand_id, failure.origin.operation) == (self.id, n) {
            self.shared.note(&failure);
            // Printing a user's error is a user's code.
            contain(|| tracing::debug!(target: TARGET, "{failure}"));
        }
        if epoch.failure().is_none() {
            self.meter.fail();
        }
        epoch.fail(n, failure);
    }

    /// The failure that a fault of operation `n` becomes, for one that does not fail the strand.
    #[must_use]
    pub fn failure_of(&self, n: u64, fault: Fault) -> Arc<Failure> {
        fault.settle(|site| self.origin(n, site))
    }

    fn origin(&self, operation: u64, site: Site) -> Origin {
        Origin {
            strand_id: self.id,
            strand: self.name(),
            operation,
            site,
        }
    }

    /// Fails the strand from inside operation `n`, which runs on the calling thread, on account of
    /// a part of it.
    pub fn fail_within(&self, n: u64, fault: Fault) -> Arc<Failure> {
        let epoch = self.inbox.lock().epoch.clone();
        self.fail(&epoch, n, fault);
        epoch
            .failure()
            .unwrap_or_else(|| unreachable!("the epoch has just been failed"))
    }

    /// Says that nobody can acknowledge a failure any more: one that is left is reported, now or
    /// when it comes.
    pub fn orphan(&self) {
        if self.shared.is_inherited() {
            return;
        }
        let mut inbox = self.inbox.lock();
        inbox.orphaned = true;
        let epoch = (!inbox.active).then(|| inbox.epoch.clone());
        drop(inbox);
        self.report(epoch);
    }

    fn report(&self, epoch: Option<Arc<Epoch>>) {
        if let Some(failure) = epoch.and_then(|epoch| epoch.failure()) {
            self.shared.report(&failure);
        }
    }

    /// Whether anything that is pending here can still come to an end.
    ///
    /// # Errors
    /// [`Refused`] as for [`push`](Self::push): after a shutdown or a fork it may never.
    pub fn admit(&self) -> Result<(), Refused> {
        self.shared.admit(Kind::Mark)
    }

    /// Whether operation `n` is done.
    #[inline]
    #[must_use]
    pub fn has_reached(&self, n: u64) -> bool {
        self.timeline.reached() >= n
    }

    /// Whether this process inherited it by a fork and must not touch it.
    #[inline]
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.shared.is_inherited()
    }

    /// Whether its operations are run by the threads that submit them.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.label.as_ref().is_some_and(|label| label.inline)
    }

    /// What the strand waits for before it can reach `n`, for the deadlock walk.
    pub(crate) fn awaited_before(&self, n: u64, found: &mut Vec<Position>) {
        let inbox = self.inbox.lock();
        let waits = inbox.waits.iter().flat_map(|waits| waits.iter());
        found.extend(
            waits
                .take_while(|wait| wait.n <= n)
                .map(|wait| wait.position.clone()),
        );
    }

    /// Creates the turn of a strand if it has just become active.
    #[inline]
    fn start(self: &Arc<Self>, activated: bool, kind: Kind) -> Start {
        if !activated {
            return Start(None);
        }
        self.shared.strand_activated();
        Start(Some((Turn(self.clone()), kind)))
    }

    /// Runs `f` with all locks held that a fork could find held.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn with_locks_held<R>(&self, f: impl FnOnce() -> R) -> R {
        let (_head, _inbox) = (self.head.lock(), self.inbox.lock());
        self.timeline.with_lock_held(f)
    }

    /// Takes what wait `n`, which is at the head, waits for off the list, one by one as far as it is
    /// reached.
    fn first_awaited(&self, n: u64) -> FirstAwaited {
        let mut inbox = self.inbox.lock();
        let Some(waits) = &mut inbox.waits else {
            return FirstAwaited::Nothing;
        };
        let reached = waits.pop_front_if(|first| first.n == n && first.position.is_reached());
        let next = waits.front().filter(|next| next.n == n);
        match (reached, next) {
            (Some(reached), next) => FirstAwaited::Reached(reached, next.is_some()),
            (None, Some(next)) => FirstAwaited::Ahead(next.position.clone()),
            (None, None) => FirstAwaited::Nothing,
        }
    }

    /// Takes what wait `n`, which is at the head, waits for off the list.
    fn forget_awaited(&self, n: u64) {
        let mut forgotten = Vec::new();
        let mut inbox = self.inbox.lock();
        if let Some(waits) = &mut inbox.waits {
            while let Some(first) = waits.pop_front_if(|first| first.n == n) {
                forgotten.push(first);
            }
        }
        drop(inbox);
        drop(forgotten);
    }
}

impl Inbox {
    /// The queue has become longer by this.
    #[inline]
    fn deepen(&mut self, more: u16, timeline: &Timeline) {
        self.depth.deepen(more, self.submitted, timeline);
    }

    /// Finds out how long the queue is.
    fn look(&mut self, timeline: &Timeline) {
        self.depth.look(self.submitted, timeline);
    }

    /// Queues one wait for all of these, of which there are some.
    fn push_wait(&mut self, awaited: impl IntoIterator<Item = (Position, Option<Arc<Epoch>>)>) {
        self.submitted += 1;
        let n = self.submitted;
        let awaited = awaited.into_iter();
        let awaited = awaited.map(|(position, epoch)| Awaited { n, position, epoch });
        self.waits.get_or_insert_default().extend(awaited);
        self.operations.push(WaitRecord);
    }
}

/// How what the wait at the head of a strand waits for stands.
enum FirstAwaited {
    /// There is nothing, or nothing more.
    Nothing,
    /// It is reached, and whether there is more.
    Reached(Awaited, bool),
    Ahead(Position),
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Start").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for Strand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strand")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Who runs a turn, and so which operations it may run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// A native worker.
    Worker,
    /// A thread of the host lane.
    HostThread,
    /// A thread of another language's, which takes its operations out itself.
    ForeignThread,
    /// Any thread that passes by: brief records only.
    Passer,
}

impl Runner {
    /// What the lane of its threads is for.
    fn kind(self) -> Kind {
        match self {
            Self::HostThread => Kind::Host,
            Self::ForeignThread => Kind::Foreign,
            Self::Worker | Self::Passer => Kind::Native,
        }
    }

    #[inline]
    fn runs(self, kind: Kind) -> bool {
        match kind {
            Kind::Native => self == Self::Worker,
            Kind::Host => self == Self::HostThread,
            Kind::Foreign => false,
            Kind::Mark | Kind::Brief | Kind::Visit | Kind::Wait | Kind::Epoch | Kind::Note => true,
        }
    }
}

/// Why a batch ended.
enum Stop {
    /// The strand is idle; and the epoch, if nobody can acknowledge its failure any more.
    Dry(Option<Arc<Epoch>>),
    /// At a wait for this; and what comes next then, if that is known.
    Parks(Position, Option<Kind>),
    Visit(Arc<Baton>),
    Needs(Kind),
    Enough,
}

/// The operation failed its strand.
struct Failed;

/// What a look into the inbox brought.
enum Refill {
    More,
    /// Nothing, so the strand is idle; and the epoch, if nobody can acknowledge its failure any more.
    Idle(Option<Arc<Epoch>>),
}

/// What became of a turn that was run.
pub(crate) enum Leave {
    /// It ended, is parked, or is with somebody else.
    Gone,
    /// There is more to do for this runner.
    Again(Turn),
    /// The next operation is for another lane.
    Needs(Turn, Kind),
}

/// The right to run a strand. It exists at most once per strand; dropping it would stop the strand
/// for good, so whoever has it runs it, parks it or hands it on.
#[must_use]
pub(crate) struct Turn(Arc<Strand>);

impl Turn {
    pub(crate) fn strand(&self) -> &Arc<Strand> {
        &self.0
    }

    /// Runs a batch as `runner`.
    pub(crate) fn run(mut self, runner: Runner) -> Leave {
        loop {
            match self.run_batch(runner) {
                Stop::Dry(orphaned) => {
                    self.end(orphaned);
                    return Leave::Gone;
                }
                Stop::Parks(position, next) => match self.park(&position, next) {
                    None => return Leave::Gone,
                    Some(turn) => self = turn,
                },
                Stop::Visit(baton) => match self.give(&baton) {
                    None => return Leave::Gone,
                    // The visitor has withdrawn: its number passes without work.
                    Some(turn) => {
                        turn.0.timeline.advance();
                        self = turn;
                    }
                },
                Stop::Needs(kind) => return Leave::Needs(self, kind),
                Stop::Enough => return Leave::Again(self),
            }
        }
    }

    /// Makes the strand ready, of which the next operation has this kind.
    fn begin(self, kind: Kind) {
        match kind {
            // The runtime's own brief records need no worker. A call that is made where a point is
            // reached must not pass on to the next such call, though: a chain has no end.
            _ if frames::are_in_call() => self.schedule(None),
            Kind::Wait | Kind::Epoch | Kind::Mark | Kind::Brief | Kind::Visit | Kind::Note => {
                self.pass()
            }
            Kind::Native | Kind::Host | Kind::Foreign => self.dispatch(kind),
        }
    }

    /// Runs what any thread may run, and hands the rest to its lane.
    pub(crate) fn pass(self) {
        match self.run(Runner::Passer) {
            Leave::Gone => {}
            Leave::Again(turn) => turn.schedule(None),
            Leave::Needs(turn, kind) => turn.dispatch(kind),
        }
    }

    fn run_batch(&self, runner: Runner) -> Stop {
        let strand = &*self.0;
        // Read once: they lie beside what the submitters write.
        let (shared, id) = (&*strand.shared, strand.id);
        let mut head = strand.head.lock();
        // Nobody else can fail the epoch while the turn is here.
        let mut failure = head.epoch.failure();
        let mut left = BATCH;
        loop {
            let Some(kind) = head.operations.peek() else {
                if runner == Runner::Worker && left < BATCH {
                    self.linger();
                }
                match self.refill(&mut head) {
                    Refill::More => continue,
                    Refill::Idle(orphaned) => return Stop::Dry(orphaned),
                }
            };
            // Read each time: what is behind an operation that outlasts the shutdown must not run.
            let closed = shared.is_closed();
            match kind {
                Kind::Wait => {
                    if let Some(position) = self.pass_wait(&mut head) {
                        self.log_wait(&mut head);
                        return Stop::Parks(position, head.operations.peek_work(LOOKED_AT));
                    }
                    failure = head.epoch.failure();
                }
                Kind::Note => {
                    let note = head.operations.take_next::<Note>();
                    let n = strand.timeline.reached() + 1;
                    head.noted = note.map(|note| note.of(n));
                }
                Kind::Epoch => {
                    if let Some(record) = head.operations.take_next::<EpochRecord>() {
                        head.epoch = record.0;
                    }
                    failure = head.epoch.failure();
                }
                Kind::Visit if !closed => {
                    if let Some(visit) = head.operations.take_next::<Visit>() {
                        return Stop::Visit(visit.0);
                    }
                }
                kind if !runner.runs(kind) => return Stop::Needs(kind),
                kind => {
                    if left == 0 || closed {
                        return Stop::Enough;
                    }
                    left -= 1;
                    match &failure {
                        Some(failure) if kind != Kind::Mark => {
                            strand.meter.skip();
                            let n = strand.timeline.reached() + 1;
                            if let Some(noted) = &mut head.noted {
                                noted.skip(failure);
                            }
                            strand.skip_next(&mut head, n, failure);
                            self.log_end(&mut head, n, None);
                            strand.timeline.advance();
                        }
                        _ => {
                            if self.perform(shared, id, &mut head, kind).is_err() {
                                failure = head.epoch.failure();
                            }
                        }
                    }
                }
            }
        }
    }

    /// Runs the operation at the head.
    #[inline]
    fn perform(&self, shared: &Shared, id: u64, head: &mut Head, kind: Kind) -> Result<(), Failed> {
        let strand = &*self.0;
        let n = strand.timeline.reached() + 1;
        if !matches!(kind, Kind::Mark | Kind::Brief) {
            strand.meter.start();
        }
        // The operation may take long: this thread's other ready strands are for others then.
        if let Some(lane) = shared.lane(kind) {
            lane.publish();
        }
        frames::enter(Frame { strand: id, n });
        self.log_begin(head);
        let outcome = head.operations.run_next();
        frames::leave();
        let outcome = outcome.map_err(|fault| {
            strand.fail(&head.epoch, n, fault);
            Failed
        });
        self.log_end(
            head,
            n,
            outcome.is_err().then(|| head.epoch.failure()).flatten(),
        );
        strand.timeline.advance();
        outcome
    }

    /// The strand parks at the wait at the head, maybe again.
    fn log_wait(&self, head: &mut Head) {
        let n = self.0.timeline.reached() + 1;
        if !head.noted.as_ref().is_some_and(|noted| noted.is_of(n)) {
            head.noted = self.0.shared.log.note_wait(n);
        }
    }

    /// The operation at hand begins.
    #[inline]
    fn log_begin(&self, head: &mut Head) {
        if let Some(noted) = &mut head.noted {
            self.0.shared.log.begin(noted);
        }
    }

    /// Operation `n`, the one at hand, ends. Called before the timeline tells.
    #[inline]
    fn log_end(&self, head: &mut Head, n: u64, failure: Option<Arc<Failure>>) {
        if let Some(noted) = head.noted.take() {
            self.0.shared.log.end(&self.0, n, noted, failure);
        }
    }

    /// As [`log_begin`](Self::log_begin), for a thread that runs the operation at hand itself and knows
    /// what it is, or skips it.
    pub(crate) fn log_visit(
        &self,
        what: impl FnOnce() -> Description,
        skipped: Option<&Arc<Failure>>,
    ) {
        if !self.0.shared.log.is_on() {
            return;
        }
        // What it says of itself may be another language's code: not under the lock.
        let what = what();
        let mut head = self.0.head.lock();
        if let Some(noted) = &mut head.noted {
            noted.describe(what);
            skipped.into_iter().for_each(|why| noted.skip(why));
            self.0.shared.log.begin(noted);
        }
    }

    /// Tells a trace that operation `n`, the one at hand, fails by this, where the strand does not.
    pub(crate) fn log_fault(&self, n: u64, fault: Fault) {
        let failure = self.0.failure_of(n, fault);
        if let Some(noted) = &mut self.0.head.lock().noted {
            noted.fail(failure, self.0.id);
        }
    }

    /// Passes the wait at the head, or says what it waits for. A strand that failed keeps its waits:
    /// what follows an acknowledgement, and whoever waits for the strand, relies on them.
    fn pass_wait(&self, head: &mut Head) -> Option<Position> {
        let strand = &*self.0;
        let n = strand.timeline.reached() + 1;
        let mut more = true;
        while more {
            match strand.first_awaited(n) {
                FirstAwaited::Nothing => break,
                FirstAwaited::Ahead(position) => return Some(position),
                FirstAwaited::Reached(awaited, others) => {
                    strand.shared.log.passed(&self.0, &awaited.position);
                    if let Some(failure) = awaited.failure() {
                        strand.meter.skip();
                        head.epoch.fail(n, failure);
                    }
                    more = others;
                }
            }
        }
        let _ = head.operations.take_next::<WaitRecord>();
        self.log_end(head, n, None);
        strand.timeline.advance();
        None
    }

    /// Takes what was submitted meanwhile.
    fn refill(&self, head: &mut Head) -> Refill {
        let strand = &*self.0;
        let mut inbox = strand.inbox.lock();
        inbox.look(&strand.timeline);
        if !inbox.operations.is_empty() {
            std::mem::swap(&mut inbox.operations, &mut head.operations);
            return Refill::More;
        }
        strand.meter.stop();
        inbox.active = false;
        inbox.waits = None;
        // One small block is kept for the next operation, and it is the inbox that needs it.
        inbox.operations.trim();
        let spare = std::mem::take(&mut head.operations);
        inbox.operations.adopt(spare);
        Refill::Idle(inbox.orphaned.then(|| inbox.epoch.clone()))
    }

    /// Keeps away from the inbox for a moment after the strand ran dry, so that a busy submitter has
    /// it in its own cache and the next look finds many operations, not few: that is worth a factor
    /// of four. Not while a thread or a strand waits for this one, or other strands are ready.
    fn linger(&self) {
        let strand = &*self.0;
        for _ in 0..LINGERS {
            if strand.timeline.is_awaited() || strand.shared.native.has_ready() {
                return;
            }
            pause();
        }
    }

    /// Hands the turn to a visitor; gives it back if that has withdrawn.
    fn give(self, baton: &Baton) -> Option<Turn> {
        self.0.meter.stop();
        baton.give(self)
    }

    /// Leaves the turn with the timeline it waits for; gives it back if that is reached.
    fn park(self, position: &Position, next: Option<Kind>) -> Option<Turn> {
        self.0.meter.stop();
        let waiter = Waiter::Strand(self, next);
        match position.strand().timeline.register(position.n(), waiter) {
            Ok(_) => None,
            Err(Waiter::Strand(turn, _)) => Some(turn),
            Err(_) => unreachable!("a strand went in"),
        }
    }

    /// The strand went idle under the inbox's lock.
    fn end(self, orphaned: Option<Arc<Epoch>>) {
        let strand = &*self.0;
        strand.report(orphaned);
        strand.shared.strand_retired();
    }

    /// Makes a strand that waited ready again. Runs nothing, so that waking never recurses.
    pub(crate) fn schedule(self, next: Option<Kind>) {
        let kind = next.unwrap_or_else(|| self.next_work());
        self.dispatch(kind);
    }

    /// The kind of the next operation that needs a certain lane.
    fn next_work(&self) -> Kind {
        let ahead = self.0.head.lock().operations.peek_work(LOOKED_AT);
        let kind = ahead.or_else(|| self.0.inbox.lock().operations.peek_work(LOOKED_AT));
        kind.unwrap_or(Kind::Native)
    }

    /// Whether what comes next is the runtime's own and brief, so that any thread may run it.
    pub(crate) fn is_brief(&self) -> bool {
        let ahead = self.0.head.lock().operations.peek();
        let next = ahead.or_else(|| self.0.inbox.lock().operations.peek());
        matches!(
            next,
            Some(Kind::Mark | Kind::Brief | Kind::Wait | Kind::Epoch)
        )
    }

    /// Queues the turn on the lane for `kind`.
    pub(crate) fn dispatch(self, kind: Kind) {
        self.0.meter.stop();
        let shared = &self.0.shared;
        let lane = shared.lane(kind).unwrap_or(&shared.native);
        if lane.keeps_for_caller() {
            return lane::keep(self);
        }
        let shared = shared.clone();
        let lane = shared.lane(kind).unwrap_or(&shared.native);
        if let Err(turn) = lane.push_turn(self) {
            shared.bury(turn);
        }
    }

    /// Takes the operation at the head out, for a thread that runs it itself and then calls
    /// [`finish`](Self::finish). Outer `Err`: the head holds no `T`, or it was skipped.
    pub(crate) fn take<T: Operation>(&self) -> Option<Taken<T>> {
        let strand = &*self.0;
        let mut head = strand.head.lock();
        let n = strand.timeline.reached() + 1;
        let failure = head.epoch.failure_at(n);
        let operation = head.operations.take_next::<T>()?;
        if let Some(noted) = &mut head.noted {
            failure.iter().for_each(|why| noted.skip(why));
            strand.shared.log.begin(noted);
        }
        match &failure {
            Some(_) => strand.meter.skip(),
            None => strand.meter.start(),
        }
        Some(Taken {
            operation,
            n,
            more: !head.operations.is_empty(),
            failure,
        })
    }

    /// Why operation `n`, the one at hand, is to be skipped.
    pub(crate) fn failure_at(&self, n: u64) -> Option<Arc<Failure>> {
        self.0.head.lock().epoch.failure_at(n)
    }

    /// Ends the operation at hand, `n`, which was taken out.
    pub(crate) fn finish(&self, n: u64, outcome: Result<(), Fault>) {
        if let Err(fault) = outcome {
            let epoch = self.0.head.lock().epoch.clone();
            self.0.fail(&epoch, n, fault);
        }
        if self.0.shared.log.is_on() {
            let mut head = self.0.head.lock();
            let failure = head.epoch.failure_at(n);
            self.log_end(&mut head, n, failure);
        }
        self.0.timeline.advance();
    }

    /// Skips everything that is left, because the executor shut down.
    pub(crate) fn abandon(self) {
        let strand = &*self.0;
        let mut head = strand.head.lock();
        let orphaned = loop {
            let kind = match head.operations.peek() {
                Some(kind) => kind,
                None => match self.refill(&mut head) {
                    Refill::More => continue,
                    Refill::Idle(epoch) => break epoch,
                },
            };
            let n = strand.timeline.reached() + 1;
            match kind {
                Kind::Epoch => {
                    if let Some(record) = head.operations.take_next::<EpochRecord>() {
                        head.epoch = record.0;
                    }
                    continue;
                }
                Kind::Note => {
                    drop(head.operations.take_next::<Note>());
                    continue;
                }
                Kind::Wait => strand.forget_awaited(n),
                _ => {}
            }
            let failure = head.epoch.failure_at(n).unwrap_or_else(|| {
                let failure = Failure::new(Reason::ShutDown, strand.origin(n, Site::Unknown));
                head.epoch.fail(n, failure.clone());
                failure
            });
            strand.meter.skip();
            strand.skip_next(&mut head, n, &failure);
            strand.timeline.advance();
        };
        drop(head);
        self.end(orphaned);
    }
}

/// The first step of a strand that has become active: when this is dropped, it is ready, and brief
/// records at its head run right there. So no lock may be held then.
#[must_use]
pub struct Start(Option<(Turn, Kind)>);

impl Drop for Start {
    #[inline]
    fn drop(&mut self) {
        if let Some((turn, kind)) = self.0.take() {
            turn.begin(kind);
        }
    }
}

/// An operation that was taken out to be run by its taker.
pub(crate) struct Taken<T> {
    pub(crate) operation: T,
    pub(crate) n: u64,
    /// Whether more is behind it, apart from what lies in the inbox.
    pub(crate) more: bool,
    /// It is to be skipped because of this.
    pub(crate) failure: Option<Arc<Failure>>,
}

/// Runs the jobs of `lane` until it closes.
pub(crate) fn serve(lane: &Arc<Lane>, runner: Runner) {
    lane.arrive();
    let mut job = lane.take();
    while let Some(current) = job {
        match current {
            Job::Turn(turn) => serve_turn(lane, turn, runner),
            Job::Loose(loose) => loose.run(),
        }
        job = lane.next();
    }
}

fn serve_turn(lane: &Arc<Lane>, mut turn: Turn, runner: Runner) {
    loop {
        if turn.0.shared.is_closed() {
            return turn.0.shared.clone().bury(turn);
        }
        match turn.run(runner) {
            Leave::Gone => return,
            Leave::Again(again) if !lane.has_ready() => turn = again,
            Leave::Again(again) => return again.dispatch(runner.kind()),
            Leave::Needs(turn, kind) => return turn.dispatch(kind),
        }
    }
}
