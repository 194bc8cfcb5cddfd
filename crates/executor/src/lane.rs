//! A lane: ready strands, and the threads that run them.
//!
//! An executor has three lanes of the same make: native workers, host threads, and the threads of
//! another language. They differ in how many threads they may have and in who makes them.
//!
//! # Protocol
//! Everything is decided under one lock. A thread of the lane is in one of three states:
//!
//! * *searching*: awake, on its way to the queue. It was counted when it was woken or arrived.
//! * *busy*: it took a job, or it waits inside one (*blocked*, if it told the lane so).
//! * *asleep*: on the list of sleepers.
//!
//! A job is pushed and a thread falls asleep under the same lock, and a thread falls asleep only
//! when it has seen the queue empty, so a pushed job is never overlooked. Whoever leaves a job in
//! the queue *musters*: if nobody searches, it wakes a sleeper; if nobody sleeps or is *coming*, it
//! asks for one more thread, up to the limit. One that was asked for may be long in coming, or not
//! come at all, so nobody relies on it.
//! A searching thread that takes a job and leaves more behind musters the next. So one wake-up is
//! under way at a time, and a burst of jobs wakes as many threads as find work.
//!
//! Blocked threads do not count towards the limit: a thread that waits is replaced, and whoever is
//! too many when the wait is over leaves at its next idle moment.
//!
//! Strands that an operation makes ready stay in the thread's own list ([`keep`])
//! until the thread starts another operation, and are then published; a hand-over between two
//! streams costs no lock and no wake-up. The own list is used only while the queue is empty, so
//! the order in which strands become ready is the order in which they run. A thread that begins to
//! search, or falls asleep, gives its own list to the queue.
//!
//! Shutdown: `close` marks the lane and wakes everyone; threads leave when they next look. What is
//! left in the queue is the closer's to bury.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::executor::Loose;
use crate::frames;
use crate::strand::Turn;
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, SPINS, Thread, current,
    park_until, pause, thread_local, yield_now,
};

/// What a lane's queue holds.
pub(crate) enum Job {
    /// A ready strand.
    Turn(Turn),
    /// One operation that belongs to no strand.
    Loose(Box<Loose>),
}

/// Starts a thread for a lane.
pub(crate) type Spawn = fn(Arc<Lane>) -> io::Result<()>;

/// How a lane gets its threads.
pub(crate) struct Crew {
    /// At most this many threads that are not blocked.
    pub(crate) limit: usize,
    /// An idle thread leaves after this time, unless it is the last that sleeps.
    pub(crate) keep_idle: Option<Duration>,
    /// Makes one more thread that will call [`Lane::arrive`]; `None` where a thread of the lane has
    /// to do that itself.
    pub(crate) spawn: Option<Spawn>,
    /// Asked for one more thread by [`ask`], where another language makes them.
    pub(crate) recruiter: Option<Recruiter>,
}

/// Asks another language for a thread. It must not block, and sees to it that a thread
/// arrives or that the lane is told that none will.
pub type Recruiter = fn() -> io::Result<()>;

/// The way to a thread for a lane with a recruiter.
pub(crate) fn ask(lane: Arc<Lane>) -> io::Result<()> {
    lane.crew.recruiter.map_or(Ok(()), |recruiter| recruiter())
}

pub(crate) struct Lane {
    crew: Crew,
    /// Jobs in the queue: a hint to look, read without the lock.
    ready: AtomicUsize,
    /// Operations begun by the lane's threads: it stands still while all of them are in one.
    progress: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    sleepers: Vec<Arc<Sleeper>>,
    threads: usize,
    searching: usize,
    /// Threads that were asked for and have not arrived.
    coming: usize,
    blocked: usize,
    closed: bool,
}

impl State {
    /// Counts a thread that will be asked for.
    fn ask(&mut self) {
        self.threads += 1;
        self.coming += 1;
    }

    /// Threads that count towards the limit. One that holds several waits is counted blocked as
    /// often, at worst for a thread too many.
    fn awake(&self) -> usize {
        self.threads.saturating_sub(self.blocked)
    }
}

/// A thread of a lane while it sleeps.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

/// What to do once the lock is free.
enum Muster {
    Nobody,
    Wake(Arc<Sleeper>),
    Spawn(Spawn),
}

/// Strands that this thread made ready and has not published.
struct Local {
    lane: *const Lane,
    turns: VecDeque<Turn>,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = RefCell::new(None);
}

/// Keeps a strand for the calling thread, of whose lane it is.
#[inline]
pub(crate) fn keep(turn: Turn) {
    LOCAL.with(|local| {
        if let Some(local) = &mut *local.borrow_mut() {
            local.turns.push_back(turn);
        }
    });
}

/// The calling thread is no lane's any more.
pub(crate) fn forget_thread() {
    let _ = LOCAL.try_with(|local| local.borrow_mut().take());
}

impl Lane {
    pub(crate) fn new(crew: Crew) -> Arc<Self> {
        let state = Mutex::new(State::default());
        let (ready, progress) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Self {
            crew,
            ready,
            progress,
            state,
        })
    }

    /// Whether strands wait, here or in the calling thread's own list.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) > 0
            || self.with_local(|turns| !turns.is_empty()).unwrap_or(false)
    }

    /// Whether the queue holds a job, as of a moment ago.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.ready.load(Ordering::Acquire) > 0
    }

    /// Queues a job; gives it back if the lane is closed.
    pub(crate) fn push(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.settle(state);
        Ok(())
    }

    /// Whether the calling thread is one of this lane's, and between two operations: a strand that
    /// becomes ready then may be [kept](keep) for it.
    #[inline]
    pub(crate) fn keeps_for_caller(&self) -> bool {
        !frames::are_inside() && self.is_mine()
    }

    /// Queues a strand; gives it back if the lane is closed.
    pub(crate) fn push_turn(self: &Arc<Self>, turn: Turn) -> Result<(), Turn> {
        self.push(Job::Turn(turn)).map_err(|job| match job {
            Job::Turn(turn) => turn,
            Job::Loose(_) => unreachable!("a turn went in"),
        })
    }

    /// Hands the calling thread's own strands to the others: it starts something longer.
    #[inline]
    pub(crate) fn publish(self: &Arc<Self>) {
        let turns = self.with_local(std::mem::take).unwrap_or_default();
        if !turns.is_empty() {
            let mut state = self.state.lock();
            state.jobs.extend(turns.into_iter().map(Job::Turn));
            self.settle(state);
        }
    }

    /// Makes sure that the lane has a thread, so that what is queued will run.
    pub(crate) fn ensure_thread(self: &Arc<Self>) -> io::Result<()> {
        let Some(spawn) = self.crew.spawn else {
            return Ok(());
        };
        let mut state = self.state.lock();
        if state.threads > 0 || state.closed {
            return Ok(());
        }
        state.ask();
        drop(state);
        self.spawn(spawn)
    }

    /// Counts a thread that a foreign maker is about to start, if one is needed: nobody searches
    /// or sleeps, and the limit allows it. It must call [`arrive`](Self::arrive), or
    /// [`depart`](Self::depart) if it cannot be started.
    pub(crate) fn recruit(&self) -> bool {
        let mut state = self.state.lock();
        let spare = state.searching + state.coming > 0 || !state.sleepers.is_empty();
        if spare || state.closed || state.awake() >= self.crew.limit {
            return false;
        }
        state.ask();
        true
    }

    /// Brings the hint up to date. Called before the lock goes, wherever the state has changed.
    fn hint(&self, state: &State) {
        self.ready.store(state.jobs.len(), Ordering::Release);
    }

    /// A counted thread begins.
    pub(crate) fn arrive(&self) {
        let mut state = self.state.lock();
        state.coming -= 1;
        state.searching += 1;
        drop(state);
        LOCAL.with(|local| {
            *local.borrow_mut() = Some(Local {
                lane: self,
                turns: VecDeque::new(),
            });
        });
    }

    /// The calling thread, which searches or is busy, ends early. Gives out what it kept for itself.
    pub(crate) fn leave(self: &Arc<Self>, searching: bool) -> VecDeque<Turn> {
        let turns = self.with_local(std::mem::take).unwrap_or_default();
        forget_thread();
        let mut state = self.state.lock();
        state.threads -= 1;
        state.searching -= usize::from(searching);
        self.settle(state);
        turns
    }

    /// Operations that the lane's threads have begun.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// A thread of the lane begins an operation. Two at once may count as one: what matters is that
    /// the number changes.
    #[inline]
    pub(crate) fn note_progress(&self) {
        let begun = self.progress.load(Ordering::Relaxed);
        self.progress.store(begun + 1, Ordering::Relaxed);
    }

    /// A counted thread is not needed any more, if no job waits. `false`: one does.
    pub(crate) fn depart_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.jobs.is_empty() || state.closed;
        if idle {
            state.coming -= 1;
            state.threads -= 1;
        }
        idle
    }

    /// A thread that was asked for does not come.
    pub(crate) fn depart(&self) {
        let mut state = self.state.lock();
        state.coming -= 1;
        state.threads -= 1;
    }

    /// The next job for a busy thread of this lane; sleeps until there is one. `None`: leave.
    pub(crate) fn next(self: &Arc<Self>) -> Option<Job> {
        if let Some(turn) = self.next_local() {
            return Some(Job::Turn(turn));
        }
        let mut state = self.state.lock();
        if let Some(job) = self.pop(&mut state) {
            self.settle(state);
            return Some(job);
        }
        state.searching += 1;
        drop(state);
        self.rest().then(|| self.take()).flatten()
    }

    /// A strand of the thread's own, if nothing waits in the queue.
    #[inline]
    pub(crate) fn next_local(&self) -> Option<Turn> {
        if self.ready.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.with_local(VecDeque::pop_front).flatten()
    }

    /// A busy thread begins to search.
    pub(crate) fn search(&self) {
        let mut state = self.state.lock();
        self.offer(&mut state);
        state.searching += 1;
        self.hint(&state);
    }

    /// The next job for a searching thread; sleeps until there is one. `None`: leave.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Job> {
        loop {
            if let Some(job) = self.try_take() {
                return Some(job);
            }
            if !self.rest() {
                return None;
            }
        }
    }

    /// The next job for a searching thread, which is busy with it from here on.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Job> {
        let mut state = self.state.lock();
        let job = self.pop(&mut state)?;
        state.searching -= 1;
        self.settle(state);
        Some(job)
    }

    /// The first job, the calling thread's own behind the others.
    fn pop(&self, state: &mut State) -> Option<Job> {
        self.offer(state);
        state.jobs.pop_front()
    }

    /// Puts what the calling thread kept for itself behind the others.
    fn offer(&self, state: &mut State) {
        if let Some(turns) = self.with_local(std::mem::take) {
            state.jobs.extend(turns.into_iter().map(Job::Turn));
        }
    }

    /// A searching thread looks on briefly, then sleeps until it is needed. `false`: it is counted
    /// out and leaves.
    pub(crate) fn rest(&self) -> bool {
        for round in 0..2 * SPINS {
            if self.is_waited_for() {
                return true;
            }
            if round < SPINS { pause() } else { yield_now() }
        }
        self.sleep()
    }

    fn sleep(&self) -> bool {
        let mut state = self.state.lock();
        // Nobody else could run what the thread took to sleep with it. It may have kept a strand since it
        // began to search, as code that runs between two operations may submit.
        self.offer(&mut state);
        if !state.jobs.is_empty() {
            self.hint(&state);
            return true;
        }
        let superfluous = state.awake() > self.crew.limit;
        state.searching -= 1;
        if state.closed || superfluous {
            state.threads -= 1;
            self.hint(&state);
            return false;
        }
        let sleeper = Arc::new(Sleeper {
            thread: current(),
            woken: AtomicBool::new(false),
        });
        state.sleepers.push(sleeper.clone());
        drop(state);
        self.sleep_as(&sleeper)
    }

    fn sleep_as(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut until = self.crew.keep_idle.map(|time| Instant::now() + time);
        while !sleeper.woken.load(Ordering::Acquire) {
            park_until(until);
            if until.is_some_and(|until| until <= Instant::now()) {
                if self.retire(sleeper) {
                    return false;
                }
                until = None;
            }
        }
        true
    }

    /// Takes a thread that idled for long off the lane, unless it was woken or is the last asleep.
    fn retire(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut state = self.state.lock();
        let place = state
            .sleepers
            .iter()
            .position(|other| Arc::ptr_eq(other, sleeper));
        match place {
            Some(place) if state.sleepers.len() > 1 => {
                state.sleepers.remove(place);
                state.threads -= 1;
                self.hint(&state);
                true
            }
            _ => false,
        }
    }

    /// The calling busy thread will wait inside its job: another may take its place.
    pub(crate) fn block(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.blocked += 1;
        self.settle(state);
    }

    /// The wait is over.
    pub(crate) fn unblock(&self) {
        self.state.lock().blocked -= 1;
    }

    /// Whether the calling thread is one of this lane's.
    pub(crate) fn is_mine(&self) -> bool {
        self.with_local(|_| ()).is_some()
    }

    /// Takes the strand that `wanted` names out of the queue, if it is among the first few.
    pub(crate) fn steal(&self, wanted: impl Fn(&Turn) -> bool) -> Option<Turn> {
        const LOOKED_AT: usize = 8;
        let mut state = self.state.lock();
        let place = state
            .jobs
            .iter()
            .take(LOOKED_AT)
            .position(|job| match job {
                Job::Turn(turn) => wanted(turn),
                Job::Loose(_) => false,
            })?;
        let job = state.jobs.remove(place)?;
        self.hint(&state);
        match job {
            Job::Turn(turn) => Some(turn),
            Job::Loose(_) => unreachable!("only turns are wanted"),
        }
    }

    /// Closes the lane and gives out what was queued.
    pub(crate) fn close(&self) -> VecDeque<Job> {
        let mut state = self.state.lock();
        state.closed = true;
        let sleepers = std::mem::take(&mut state.sleepers);
        state.searching += sleepers.len();
        let jobs = std::mem::take(&mut state.jobs);
        self.hint(&state);
        drop(state);
        sleepers.iter().for_each(|sleeper| sleeper.wake());
        jobs
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn with_lock_held<R>(&self, f: impl FnOnce() -> R) -> R {
        let _state = self.state.lock();
        f()
    }

    /// How many threads it may have that are not blocked.
    pub(crate) fn limit(&self) -> usize {
        self.crew.limit
    }

    /// How many threads the lane has.
    pub(crate) fn threads(&self) -> usize {
        self.state.lock().threads
    }

    /// Ends a critical section that may have left jobs in the queue.
    fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let muster = self.muster(&mut state);
        self.hint(&state);
        drop(state);
        match muster {
            Muster::Nobody => {}
            Muster::Wake(sleeper) => sleeper.wake(),
            // The queue stays with the threads there are: `ensure_thread` saw to the first.
            Muster::Spawn(spawn) => drop(self.spawn(spawn)),
        }
    }

    fn muster(&self, state: &mut State) -> Muster {
        if state.jobs.is_empty() || state.searching > 0 {
            return Muster::Nobody;
        }
        if let Some(sleeper) = state.sleepers.pop() {
            state.searching += 1;
            return Muster::Wake(sleeper);
        }
        match self.crew.spawn {
            Some(spawn) if state.coming == 0 && state.awake() < self.crew.limit => {
                state.ask();
                Muster::Spawn(spawn)
            }
            _ => Muster::Nobody,
        }
    }

    fn spawn(self: &Arc<Self>, spawn: Spawn) -> io::Result<()> {
        spawn(self.clone()).inspect_err(|_| self.depart())
    }

    /// The calling thread's own list, if it is a thread of this lane.
    #[inline]
    fn with_local<R>(&self, f: impl FnOnce(&mut VecDeque<Turn>) -> R) -> Option<R> {
        LOCAL
            .try_with(|local| match &mut *local.borrow_mut() {
                Some(local) if std::ptr::eq(local.lane, self) => Some(f(&mut local.turns)),
                _ => None,
            })
            .ok()
            .flatten()
    }
}

impl Sleeper {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
