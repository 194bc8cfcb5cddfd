//! The executor: its lanes, its life, and what all its strands share.
//!
//! # Shutdown
//! 1. [`Executor::drain`] waits until no strand is active, up to a deadline. Submissions are still
//!    accepted: running work may submit more.
//! 2. [`Executor::close`] refuses submissions, closes the lanes and *buries* the turns that lie in
//!    them: their operations are skipped and their timelines advance to the end, so every waiter
//!    wakes. Turns that this makes ready come back to be buried too; they lie in a list and one
//!    thread works it off, so a chain of ten thousand needs no stack.
//! 3. An operation that is still running ends in its own time; its thread then buries the turn.
//!
//! # Fork
//! An executor belongs to the process that made it. In a forked child every call is refused before
//! it takes a lock, and nothing of it is cleaned up there.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::deadlock;
use crate::failure::{Failure, Reason, Unacknowledged, contain};
use crate::frames::{self, Frame};
use crate::lane::{Crew, Job, Lane, Recruiter, Spawn, ask};
use crate::operation::{Kind, Operation, Operations};
use crate::process;
use crate::strand::{Label, Runner, Strand, Turn, serve};
use crate::sync::{
    self, Apart, AtomicBool, AtomicU64, Mutex, Ordering, Thread, current, park_until,
};
use crate::trace::Log;

/// Where the events of the executor and the runtime say that they come from.
pub const TARGET: &str = "clika_runtime";

/// Called for a failure that nobody acknowledged. It may run on any thread and must be brief.
pub type Reporter = Box<dyn Fn(&Arc<Failure>) + Send + Sync>;

/// How an executor is made.
pub struct Config {
    /// Native workers: as many as the cores it may use.
    pub workers: usize,
    /// Host threads that may be busy at once, and foreign threads likewise.
    pub host_threads: usize,
    /// Told of failures that nobody acknowledged.
    pub reporter: Reporter,
    /// Asked for foreign threads, if there are to be any.
    pub recruiter: Option<Recruiter>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("workers", &self.workers)
            .field("host_threads", &self.host_threads)
            .finish_non_exhaustive()
    }
}

/// Why a submission was not accepted. Nothing was submitted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The executor is shut down.
    ShutDown,
    /// The executor belongs to the process that this one was forked from.
    Inherited,
    /// The thread that would run it cannot be made.
    NoThread(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShutDown => f.write_str("the runtime is shut down"),
            Self::Inherited => f.write_str("the stream belongs to the parent process"),
            Self::NoThread(error) => write!(f, "no thread could be started: {error}"),
        }
    }
}

impl std::error::Error for Refused {}

/// Runs strands on its threads.
pub struct Executor(Arc<Shared>);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

/// What the strands of an executor share.
pub(crate) struct Shared {
    pub(crate) native: Arc<Lane>,
    pub(crate) host: Arc<Lane>,
    pub(crate) foreign: Arc<Lane>,
    pub(crate) deadlock: Mutex<deadlock::Table>,
    generation: u64,
    activity: Activity,
    drainers: Mutex<Drainers>,
    closed: AtomicBool,
    pub(crate) log: Log,
    host_started: AtomicBool,
    grave: Mutex<Grave>,
    unacknowledged: Mutex<Unacknowledged>,
    reporter: Reporter,
}

/// One operation that belongs to no strand. While it exists the executor is not drained.
pub(crate) struct Loose {
    operations: Operations,
    shared: Arc<Shared>,
}

impl Loose {
    pub(crate) fn new<T: Operation>(shared: Arc<Shared>, operation: T) -> Self {
        let mut operations = Operations::default();
        operations.push(operation);
        shared.strand_activated();
        Self { operations, shared }
    }

    /// Runs it here. Nobody waits for it, so its fault has nobody to go to.
    pub(crate) fn run(mut self) {
        frames::enter(Frame::LOOSE);
        let outcome = self.operations.run_next();
        contain(|| drop(outcome));
        frames::leave();
    }

    /// Takes the operation out, to be run before `self` is dropped.
    pub(crate) fn take<T: Operation>(&mut self) -> Option<T> {
        self.operations.take_next()
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.operations));
        self.shared.strand_retired();
    }
}

/// How many strands and loose operations are active: more became so than ceased to be.
///
/// Two counters on cache lines of their own, since it is the submitters that count up and the
/// workers that count down. Both only grow. Whoever reads `ended` first and then finds `begun` equal
/// knows that nothing was active in between: `begun` is never behind. The last to count down sees
/// all that counted up before it, by its own read-modify-write, and [`DRAINING`] if a drainer could
/// have read the counters before that; so it wakes the drainers, or they need no waking.
struct Activity {
    begun: Apart<AtomicU64>,
    /// In steps of [`ONE`], and [`DRAINING`].
    ended: Apart<AtomicU64>,
}

const DRAINING: u64 = 1;
const ONE: u64 = 2;

impl Activity {
    fn new() -> Self {
        Self {
            begun: Apart(AtomicU64::new(0)),
            ended: Apart(AtomicU64::new(0)),
        }
    }

    #[inline]
    fn begin(&self) {
        self.begun.0.fetch_add(ONE, Ordering::AcqRel);
    }

    /// `true`: nothing is active, and somebody wants to know.
    #[inline]
    fn end(&self) -> bool {
        let ended = self.ended.0.fetch_add(ONE, Ordering::AcqRel) + ONE;
        ended & DRAINING != 0 && ended - DRAINING == self.begun.0.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        let ended = self.ended.0.load(Ordering::Acquire) & !DRAINING;
        ended == self.begun.0.load(Ordering::Acquire)
    }

    fn watch(&self) {
        self.ended.0.fetch_or(DRAINING, Ordering::AcqRel);
    }

    fn unwatch(&self) {
        self.ended.0.fetch_and(!DRAINING, Ordering::AcqRel);
    }
}

/// Threads that wait for the executor to be drained.
#[derive(Default)]
struct Drainers {
    inside: usize,
    threads: Vec<Thread>,
}

/// Turns to be buried, and whether a thread is at it.
#[derive(Default)]
struct Grave {
    turns: Vec<Turn>,
    attended: bool,
}

fn spawn_worker(lane: Arc<Lane>) -> io::Result<()> {
    process::with_signals_blocked(|| {
        sync::spawn("clika-worker", move || {
            tracing::debug!(target: TARGET, "a native worker begins");
            serve(&lane, Runner::Worker);
        })
    })
}

fn spawn_host_thread(lane: Arc<Lane>) -> io::Result<()> {
    process::with_signals_blocked(|| {
        sync::spawn("clika-host", move || {
            tracing::debug!(target: TARGET, "a host thread begins");
            serve(&lane, Runner::HostThread);
            tracing::debug!(target: TARGET, "a host thread ends");
        })
    })
}

impl Executor {
    /// Host threads leave after idling this long.
    const KEEP_IDLE: Duration = Duration::from_secs(10);

    /// Starts an executor, with its first worker.
    ///
    /// # Errors
    /// If that thread cannot be made.
    pub fn new(config: Config) -> io::Result<Self> {
        let executor = Self::manned_by(config, Some(spawn_worker), Some(spawn_host_thread));
        executor.0.native.ensure_thread()?;
        Ok(executor)
    }

    /// An executor without threads yet, whose native and host lane get theirs by these functions.
    pub(crate) fn manned_by(config: Config, native: Option<Spawn>, host: Option<Spawn>) -> Self {
        process::watch_forks();
        let recruiter = config.recruiter;
        let lane = |limit: usize, keep_idle, spawn| {
            Lane::new(Crew {
                limit: limit.max(1),
                keep_idle,
                spawn,
                recruiter,
            })
        };
        let (threads, idle) = (config.host_threads, Some(Self::KEEP_IDLE));
        Self(Arc::new(Shared {
            native: lane(config.workers, None, native),
            host: lane(threads, idle, host),
            foreign: lane(threads, idle, recruiter.map(|_| ask as Spawn)),
            deadlock: Mutex::new(deadlock::Table::default()),
            generation: process::generation(),
            activity: Activity::new(),
            drainers: Mutex::new(Drainers::default()),
            closed: AtomicBool::new(false),
            log: Log::new(),
            host_started: AtomicBool::new(false),
            grave: Mutex::new(Grave::default()),
            unacknowledged: Mutex::new(Unacknowledged::default()),
            reporter: config.reporter,
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// A new strand.
    #[must_use]
    pub fn strand(&self, name: Option<&str>) -> Arc<Strand> {
        self.make_strand(name.map(|name| Label::new(name, false)))
    }

    /// A new strand whose operations are run by the threads that submit them: see
    /// [`Strand::visit`].
    #[must_use]
    pub fn inline_strand(&self, name: &str) -> Arc<Strand> {
        self.make_strand(Some(Label::new(name, true)))
    }

    fn make_strand(&self, label: Option<Label>) -> Arc<Strand> {
        Strand::new(self.0.clone(), process::next_strand(), label)
    }

    /// Queues an operation that belongs to no strand, behind the strands that are ready.
    ///
    /// # Errors
    /// As for [`Strand::push`].
    pub fn push_loose<T: Operation>(&self, operation: T) -> Result<(), Refused> {
        self.0.admit(T::KIND)?;
        let lane = self.0.lane(T::KIND).unwrap_or(&self.0.native);
        let loose = Loose::new(self.0.clone(), operation);
        lane.push(Job::Loose(Box::new(loose)))
            .map_err(|_| Refused::ShutDown)
    }

    /// Whether the foreign lane needs one more thread, although its recruiter was not asked: for
    /// the first one. `true` counts it: it must [arrive](crate::ForeignThread::arrive), or be
    /// [dismissed](Self::dismiss).
    #[must_use]
    pub fn recruit(&self) -> bool {
        !self.is_inherited() && self.0.foreign.recruit()
    }

    /// A thread that was asked for cannot be made.
    pub fn dismiss(&self) {
        if !self.is_inherited() {
            self.0.foreign.depart();
        }
    }

    /// A thread that was asked for is not made, if no job waits for it. `false`: one does.
    #[must_use]
    pub fn dismiss_if_idle(&self) -> bool {
        self.is_inherited() || self.0.foreign.depart_if_idle()
    }

    /// Foreign operations begun so far.
    #[must_use]
    pub fn foreign_progress(&self) -> u64 {
        self.0.foreign.progress()
    }

    /// How many native workers there may be.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.native.limit()
    }

    /// Native, host and foreign threads, as of now; none in a forked child.
    #[must_use]
    pub fn threads(&self) -> [usize; 3] {
        let lanes = [&self.0.native, &self.0.host, &self.0.foreign];
        if self.is_inherited() {
            return [0; 3];
        }
        lanes.map(|lane| lane.threads())
    }

    /// Waits until everything submitted has run (`true`) or `deadline` passed (`false`). In a
    /// forked child nothing has been.
    pub fn drain(&self, deadline: Option<Instant>) -> bool {
        let shared = &*self.0;
        if self.is_inherited() {
            return true;
        }
        shared.begin_drain();
        let drained = shared.await_idle(deadline);
        shared.end_drain();
        drained
    }

    /// Refuses submissions from here on and drops what has not begun.
    pub fn close(&self) {
        let shared = &*self.0;
        if self.is_inherited() {
            return;
        }
        shared.closed.store(true, Ordering::Release);
        for lane in [&shared.native, &shared.host, &shared.foreign] {
            for job in lane.close() {
                match job {
                    Job::Turn(turn) => shared.bury(turn),
                    Job::Loose(loose) => drop(loose),
                }
            }
        }
    }

    /// The failures that nobody has acknowledged, which are acknowledged by this.
    #[must_use]
    pub fn take_unacknowledged(&self) -> Vec<Arc<Failure>> {
        if self.is_inherited() {
            return Vec::new();
        }
        let failures = self.0.unacknowledged.lock().take();
        failures
            .into_iter()
            .filter(|failure| failure.acknowledge())
            .collect()
    }

    /// Its log of what ran when.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// Whether this process inherited the executor by a fork and must not touch it.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Runs `f` with all locks held that a fork could find held, but for those of strands.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn with_locks_held<R>(&self, f: impl FnOnce() -> R) -> R {
        let _shared = (self.deadlock.lock(), self.drainers.lock());
        let _buried = (self.grave.lock(), self.unacknowledged.lock());
        self.native
            .with_lock_held(|| self.host.with_lock_held(|| self.foreign.with_lock_held(f)))
    }

    /// Checks that an operation of `kind` can be submitted.
    #[inline]
    pub(crate) fn admit(&self, kind: Kind) -> Result<(), Refused> {
        if self.is_inherited() {
            return Err(Refused::Inherited);
        }
        if self.is_closed() {
            return Err(Refused::ShutDown);
        }
        if kind == Kind::Host && !self.host_started.load(Ordering::Relaxed) {
            self.host.ensure_thread().map_err(Refused::NoThread)?;
            self.host_started.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != process::generation()
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The lane whose threads run operations of `kind`; `None` if any thread may.
    #[inline]
    pub(crate) fn lane(&self, kind: Kind) -> Option<&Arc<Lane>> {
        match kind {
            Kind::Native => Some(&self.native),
            Kind::Host => Some(&self.host),
            Kind::Foreign => Some(&self.foreign),
            Kind::Mark | Kind::Brief | Kind::Visit | Kind::Wait | Kind::Epoch | Kind::Note => None,
        }
    }

    #[inline]
    pub(crate) fn strand_activated(&self) {
        self.activity.begin();
    }

    #[inline]
    pub(crate) fn strand_retired(&self) {
        if self.activity.end() {
            self.drainers
                .lock()
                .threads
                .iter()
                .for_each(|thread| thread.unpark());
        }
    }

    fn begin_drain(&self) {
        let mut drainers = self.drainers.lock();
        drainers.inside += 1;
        drainers.threads.push(current());
        self.activity.watch();
    }

    fn await_idle(&self, deadline: Option<Instant>) -> bool {
        while !self.activity.is_over() {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            park_until(deadline);
        }
        true
    }

    fn end_drain(&self) {
        let mut drainers = self.drainers.lock();
        drainers.inside -= 1;
        if drainers.inside == 0 {
            drainers.threads.clear();
            self.activity.unwatch();
        }
    }

    /// Skips what a turn has left, because the executor is closed.
    pub(crate) fn bury(&self, turn: Turn) {
        let mut grave = self.grave.lock();
        grave.turns.push(turn);
        if std::mem::replace(&mut grave.attended, true) {
            return;
        }
        drop(grave);
        while let Some(turn) = self.next_grave() {
            turn.abandon();
        }
    }

    fn next_grave(&self) -> Option<Turn> {
        let mut grave = self.grave.lock();
        let turn = grave.turns.pop();
        grave.attended = turn.is_some();
        turn
    }

    /// Remembers a failure until somebody acknowledges it.
    pub(crate) fn note(&self, failure: &Arc<Failure>) {
        self.unacknowledged.lock().add(failure);
    }

    /// Reports a failure, once, unless it was acknowledged. What a shutdown dropped is no failure of
    /// the work's own: whoever shut down knows.
    pub(crate) fn report(&self, failure: &Arc<Failure>) {
        let is_own = !matches!(failure.reason, Reason::ShutDown);
        if failure.acknowledge() && is_own {
            contain(|| (self.reporter)(failure));
        }
    }
}
