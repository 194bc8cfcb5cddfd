//! What the tests share: executors, gates, probes, and the watchdog.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use clika_executor::sync::Mutex;
use clika_executor::{
    Config, Executor, Failure, Host, Inside, Native, Operation, Point, Reason, Strand,
};

/// Nothing here takes anywhere near as long, on however busy a machine.
pub(crate) const FOREVER: Duration = Duration::from_secs(60);

/// How many workers the tests use.
pub(crate) fn workers() -> usize {
    setting("CLIKA_WORKERS").unwrap_or(2)
}

/// A number from the environment.
pub(crate) fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number")),
    )
}

/// Some rounds of a test, and many more in a long run.
pub(crate) fn rounds(usual: usize) -> usize {
    if std::env::var_os("CLIKA_SOAK").is_some() {
        usual * 20
    } else {
        usual
    }
}

pub(crate) fn executor() -> Executor {
    with_workers(workers())
}

pub(crate) fn with_workers(workers: usize) -> Executor {
    reporting(workers, |_| {})
}

/// An executor that reports failures to `report`.
pub(crate) fn reporting(
    workers: usize,
    report: impl Fn(&Arc<Failure>) + Send + Sync + 'static,
) -> Executor {
    let (host_threads, reporter) = (128, Box::new(report));
    let config = Config {
        workers,
        host_threads,
        reporter,
        recruiter: None,
    };
    Executor::new(config).expect("a thread")
}

/// Work for a native worker.
pub(crate) fn native(work: impl FnOnce() + Send + 'static) -> impl Operation {
    Native::new(succeeding(work), None)
}

/// Work for a host thread.
pub(crate) fn host(work: impl FnOnce() + Send + 'static) -> impl Operation {
    Host::new(succeeding(work), None)
}

fn succeeding(
    work: impl FnOnce() + Send + 'static,
) -> impl FnOnce() -> Result<(), Reason> + Send + 'static {
    move || {
        work();
        Ok(())
    }
}

/// Work that fails with `message`.
pub(crate) fn failing(message: &'static str) -> impl Operation {
    Native::new(
        move || Err(Reason::Returned(Arc::from(Box::from(message)))),
        None,
    )
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, SeqCst);
}

/// Panics without a message on the screen.
pub(crate) fn panic_quietly(payload: impl Any + Send) -> ! {
    std::panic::resume_unwind(Box::new(payload))
}

/// Waits for `point`; for a thread outside of operations.
#[track_caller]
pub(crate) fn wait(point: &Point) {
    assert!(
        point.wait().expect("not inside an operation").until(soon()),
        "hangs: {point:?}"
    );
}

/// Waits for all that was submitted to `strand`.
#[track_caller]
pub(crate) fn synchronize(strand: &Arc<Strand>) {
    wait(&strand.point());
}

/// By then everything has happened, or never will.
pub(crate) fn soon() -> Option<Instant> {
    Some(Instant::now() + FOREVER)
}

/// Takes this thread's turn on an inline strand.
#[track_caller]
pub(crate) fn enter(strand: &Arc<Strand>) -> Inside {
    let visitor = strand.visit().expect("open").expect("no deadlock");
    assert!(visitor.until(soon()), "the turn never came");
    visitor.enter().expect("no failure")
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn eventually(condition: impl Fn() -> bool) {
    let end = Instant::now() + FOREVER;
    for round in 0_u64.. {
        if condition() {
            return;
        }
        assert!(Instant::now() < end, "never came true");
        match round {
            0..100 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(round.min(2000))),
        }
    }
}

/// Threads wait at a gate until it is opened, once and for all.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    open: AtomicBool,
    came: AtomicUsize,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.0.open.store(true, SeqCst);
    }

    /// Passes the gate once it is open.
    #[track_caller]
    pub(crate) fn pass(&self) {
        count(&self.0.came);
        eventually(|| self.0.open.load(SeqCst));
    }

    /// Waits until so many threads have come to the gate.
    #[track_caller]
    pub(crate) fn await_waiting(&self, threads: usize) {
        eventually(|| self.0.came.load(SeqCst) >= threads);
    }
}

/// Holds all workers of an executor until the gate is opened.
pub(crate) fn hold_workers(executor: &Executor, workers: usize) -> Gate {
    let gate = Gate::default();
    for _ in 0..workers {
        let gate = gate.clone();
        executor
            .strand(None)
            .push(native(move || gate.pass()))
            .expect("open");
    }
    gate.await_waiting(workers);
    gate
}

/// Counts how often its probes are dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

pub(crate) struct Probe(Drops);

impl Drops {
    pub(crate) fn probe(&self) -> Probe {
        Probe(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, SeqCst);
    }
}

/// What happened, in order.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn add(&self, entry: T) {
        self.0.lock().push(entry);
    }

    /// What was added so far.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Ends the process, naming what hangs, unless it is dropped in time.
pub(crate) struct Watchdog {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(crate) fn new(what: String) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let done = done.clone();
            move || watch(&what, &done)
        });
        Self {
            done,
            thread: Some(thread),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn watch(what: &str, done: &AtomicBool) {
    let end = Instant::now() + FOREVER;
    while !done.load(SeqCst) {
        let left = end.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            eprintln!("HANGS: {what}");
            print_threads();
            std::process::abort();
        }
        std::thread::park_timeout(left);
    }
}

/// Threads that may borrow, as those of `std::thread::scope`, but each is joined: to
/// ThreadSanitizer, which does not see into the standard library, only that says that it has ended.
pub(crate) struct Threads<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    handles: RefCell<Vec<ScopedJoinHandle<'scope, ()>>>,
}

impl<'scope> Threads<'scope, '_> {
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        self.handles.borrow_mut().push(self.scope.spawn(work));
    }
}

/// Runs `f`, and then waits for the threads that it has spawned.
#[track_caller]
pub(crate) fn threads<'env>(f: impl for<'scope> FnOnce(&Threads<'scope, 'env>)) {
    std::thread::scope(|scope| {
        let handles = RefCell::default();
        let threads = Threads { scope, handles };
        f(&threads);
        for handle in threads.handles.take() {
            handle.join().unwrap();
        }
    });
}

/// Gives the threads of executors that were let go some time to end: LeakSanitizer, which looks when
/// the process ends, takes for leaked what they still hold.
pub(crate) fn let_threads_end() {
    let end = Instant::now() + Duration::from_secs(20);
    while executors_threads() > 0 && Instant::now() < end {
        std::thread::yield_now();
    }
}

fn executors_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("clika-"))
        .count()
}

/// What each thread of the process is at, as far as the system tells.
fn print_threads() {
    for thread in std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let state = read("status")
            .lines()
            .find(|line| line.starts_with("State"))
            .map(str::to_owned);
        let (name, place, stack) = (read("comm"), read("wchan"), read("stack"));
        eprintln!(
            "{} {} {place}\n{stack}",
            name.trim(),
            state.unwrap_or_default()
        );
    }
}
