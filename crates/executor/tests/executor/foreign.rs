//! Promises 8, 11 and 12 for threads that another language made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use clika_executor::sync::Mutex;
use clika_executor::{Executor, Fault, ForeignThread, Kind, Next, Operation, Reason, Strand};

use super::support::{
    Drops, Gate, Log, count, eventually, executor, failing, host, native, soon, synchronize,
    threads, wait,
};

/// Operations that one turn runs before the others get theirs.
const BATCH: usize = 32;

/// A function of the other language.
struct Function<const WORDS: usize = 1> {
    work: Box<dyn FnOnce() -> Result<(), Reason> + Send>,
    _ballast: [u64; WORDS],
}

impl<const WORDS: usize> Operation for Function<WORDS> {
    const KIND: Kind = Kind::Foreign;

    fn run(self) -> Result<(), Fault> {
        unreachable!("foreign operations are taken")
    }
}

fn function(work: impl FnOnce() + Send + 'static) -> Function {
    fallible(move || {
        work();
        Ok(())
    })
}

fn fallible(work: impl FnOnce() -> Result<(), Reason> + Send + 'static) -> Function {
    Function {
        work: Box::new(work),
        _ballast: [0],
    }
}

/// The language's threads: as many as the lane asks for.
struct Language {
    executor: Arc<Executor>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Language {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::new(executor()),
            threads: Default::default(),
        })
    }

    fn recruit(self: &Arc<Self>) {
        if self.executor.recruit() {
            let this = self.clone();
            let thread = std::thread::spawn(move || this.serve());
            self.threads.lock().push(thread);
        }
    }

    fn push(self: &Arc<Self>, strand: &Arc<Strand>, function: Function) -> clika_executor::Point {
        let point = strand.push_at(function).unwrap();
        self.recruit();
        point
    }

    fn serve(self: &Arc<Self>) {
        let mut thread = ForeignThread::arrive(&self.executor);
        loop {
            match thread.next::<Function>() {
                Some(Next::Run(function)) => {
                    self.recruit();
                    let outcome = (function.work)();
                    thread.finish(outcome.map_err(|reason| Fault::new(reason, None)));
                }
                Some(Next::Skip(function, _why)) => {
                    drop(function);
                    thread.finish(Ok(()));
                }
                None if thread.rest() => {}
                None => return,
            }
        }
    }

    /// Closes the executor; every thread must leave.
    fn close(&self) {
        self.executor.close();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join().unwrap();
        }
        assert_eq!(self.executor.threads()[2], 0, "threads are still counted");
    }
}

#[test]
fn promise_01_foreign_functions_run_in_order_with_the_others() {
    let language = Language::new();
    let strand = language.executor.strand(None);
    let (log, entries) = (Log::new(), 600);
    for n in 0..entries {
        let log = log.clone();
        let work = move || log.add(n);
        match n % 3 {
            0 => drop(language.push(&strand, function(work))),
            1 => drop(strand.push(native(work)).unwrap()),
            _ => drop(strand.push(host(work)).unwrap()),
        }
    }
    synchronize(&strand);
    assert_eq!(log.take(), (0..entries).collect::<Vec<_>>());
    language.close();
}

/// All are ready before the only thread comes.
#[test]
fn promise_01_foreign_strands_wait_for_at_most_one_batch_of_each_other() {
    let (executor, log) = (executor(), Log::new());
    let note = |at| {
        let log = log.clone();
        function(move || log.add(at))
    };
    for at in 0..3 {
        let strand = executor.strand(None);
        for _ in 0..200 {
            strand.push(note(at)).unwrap();
        }
    }
    executor.strand(None).push(note(9)).unwrap();
    assert!(executor.recruit());
    let mut thread = ForeignThread::arrive(&executor);
    while let Some(Next::Run(function)) = thread.next::<Function>() {
        (function.work)().unwrap();
        thread.finish(Ok(()));
    }
    drop(thread);
    let entries = log.take();
    assert_eq!(entries.len(), 601);
    let place = entries.iter().position(|entry| *entry == 9).unwrap();
    for at in 0..3 {
        let before = entries[..place]
            .iter()
            .filter(|entry| **entry == at)
            .count();
        assert!(
            before <= BATCH,
            "{before} operations of another strand came first"
        );
    }
}

#[test]
fn promise_07_foreign_functions_fail_skip_and_resume() {
    let language = Language::new();
    let strand = language.executor.strand(None);
    let drops = Drops::default();
    let failed = {
        let probe = drops.probe();
        language.push(
            &strand,
            fallible(move || {
                let _probe = probe;
                Err(Reason::Foreign(Box::new(42), "a number".to_owned()))
            }),
        )
    };
    let skipped = {
        let probe = drops.probe();
        language.push(&strand, function(move || drop(probe)))
    };
    wait(&skipped);
    assert_eq!(drops.count(), 2);
    let Reason::Foreign(value, _) = &failed.failure().unwrap().reason else {
        panic!("not foreign")
    };
    assert_eq!(value.downcast_ref(), Some(&42));
    assert!(Arc::ptr_eq(
        &failed.failure().unwrap(),
        &skipped.failure().unwrap()
    ));
    failed.acknowledge();
    let again = language.push(&strand, function(|| ()));
    wait(&again);
    assert!(again.failure().is_none());
    language.close();
}

#[test]
fn promise_11_blocked_foreign_functions_do_not_delay_the_next() {
    let language = Language::new();
    let gate = Gate::default();
    for _ in 0..60 {
        let gate = gate.clone();
        language.push(
            &language.executor.strand(None),
            function(move || gate.pass()),
        );
    }
    wait(&language.push(&language.executor.strand(None), function(|| ())));
    gate.open();
    assert!(language.executor.drain(soon()));
    language.close();
}

/// Functions that wait for each other's strands, many deep.
#[test]
fn promise_09_foreign_functions_may_wait_inside() {
    fn nest(language: &Arc<Language>, levels: usize) -> clika_executor::Point {
        let inner = language.clone();
        let work = move || {
            if levels > 0 {
                assert!(nest(&inner, levels - 1).wait().unwrap().until(soon()));
            }
        };
        language.push(&language.executor.strand(None), function(work))
    }
    let language = Language::new();
    wait(&nest(&language, 20));
    language.close();
}

#[test]
fn promise_11_loose_foreign_functions_run() {
    let language = Language::new();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let ran = ran.clone();
        language
            .executor
            .push_loose(function(move || count(&ran)))
            .unwrap();
        language.recruit();
    }
    assert!(language.executor.drain(soon()));
    assert_eq!(ran.load(SeqCst), 100);
    language.close();
}

/// A thread ends while it has a strand in its hands, and with others that only it knew to be ready.
#[test]
fn promise_14_a_foreign_thread_that_ends_leaves_its_strands_to_another() {
    let language = Language::new();
    let (signal, waits) = (
        language.executor.strand(None),
        language.executor.strand(None),
    );
    let ran = Arc::new(AtomicUsize::new(0));
    let step = || {
        let ran = ran.clone();
        function(move || count(&ran))
    };
    signal.push(step()).unwrap();
    waits.wait_for(&signal.point()).unwrap();
    let ends = [
        signal.push_at(step()).unwrap(),
        waits.push_at(step()).unwrap(),
    ];
    assert!(language.executor.recruit());
    threads(|threads| {
        threads.spawn(|| {
            let mut thread = ForeignThread::arrive(&language.executor);
            let Some(Next::Run(function)) = thread.next::<Function>() else {
                panic!("no work")
            };
            (function.work)().unwrap();
            thread.finish(Ok(()));
        });
    });
    assert_eq!((ran.load(SeqCst), language.executor.threads()[2]), (1, 0));
    language.recruit();
    ends.iter().for_each(wait);
    assert_eq!(ran.load(SeqCst), 3);
    language.close();
}

/// A thread that left one executor may come to another, and is no longer of the first.
#[test]
fn promise_14_a_thread_may_serve_one_executor_after_another() {
    for _ in 0..20 {
        let executor = Arc::new(executor());
        let strand = executor.strand(None);
        let end = strand.push_at(function(|| ())).unwrap();
        assert!(executor.recruit());
        let mut thread = ForeignThread::arrive(&executor);
        let Some(Next::Run(function)) = thread.next::<Function>() else {
            panic!("no work")
        };
        (function.work)().unwrap();
        thread.finish(Ok(()));
        drop(thread);
        assert!(end.is_reached());
        // As any other thread from here on: what it makes ready goes to the queue.
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
    }
}

#[test]
fn promise_12_foreign_functions_that_did_not_begin_are_dropped_at_the_shutdown() {
    let language = Language::new();
    let drops = Drops::default();
    let points: Vec<_> = (0..10)
        .map(|_| {
            let probe = drops.probe();
            language
                .executor
                .strand(None)
                .push_at(function(move || drop(probe)))
                .unwrap()
        })
        .collect();
    language.executor.close();
    points.iter().for_each(wait);
    assert_eq!(drops.count(), 10);
    assert!(!language.executor.recruit(), "a closed lane needs nobody");
}

/// The thread is inside a function while the executor closes; it ends that, and leaves.
#[test]
fn promise_12_a_foreign_thread_inside_a_function_ends_it_and_leaves() {
    let language = Language::new();
    let strand = language.executor.strand(None);
    let gate = Gate::default();
    let running = {
        let gate = gate.clone();
        language.push(&strand, function(move || gate.pass()))
    };
    let behind = language.push(&strand, function(|| ()));
    gate.await_waiting(1);
    language.executor.close();
    gate.open();
    wait(&behind);
    assert!(running.failure().is_none() && behind.failure().is_some());
    language.close();
}

/// Code that runs between two operations, such as a destructor, may submit.
#[test]
fn promise_01_what_a_searching_thread_makes_ready_does_not_sleep_with_it() {
    let executor = executor();
    let strand = executor.strand(None);
    assert!(executor.recruit());
    let mut thread = ForeignThread::arrive(&executor);
    for round in 1..=3 {
        assert!(thread.next::<Function>().is_none());
        let n = strand.push(function(|| ())).unwrap();
        assert!(thread.rest(), "it has work");
        let Some(Next::Run(function)) = thread.next::<Function>() else {
            panic!("the work of round {round} is lost")
        };
        (function.work)().unwrap();
        thread.finish(Ok(()));
        assert!(strand.has_reached(n));
    }
    executor.close();
}

/// Operations larger than a queue stores inline are given out all the same.
#[test]
fn promise_17_a_foreign_operation_may_be_large() {
    let executor = executor();
    let strand = executor.strand(None);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let work = Box::new(move || {
        count.fetch_add(1, SeqCst);
        Ok(())
    });
    strand
        .push(Function::<100> {
            work,
            _ballast: [7; 100],
        })
        .unwrap();
    let mut thread = {
        assert!(executor.recruit());
        ForeignThread::arrive(&executor)
    };
    let Some(Next::Run(function)) = thread.next::<Function<100>>() else {
        panic!("no work")
    };
    (function.work)().unwrap();
    thread.finish(Ok(()));
    eventually(|| strand.pending() == 0);
    assert_eq!(ran.load(SeqCst), 1);
}

#[test]
fn promise_07_a_foreign_function_behind_a_native_failure_is_skipped() {
    let language = Language::new();
    let strand = language.executor.strand(None);
    let first = strand.push_at(failing("native")).unwrap();
    let drops = Drops::default();
    let probe = drops.probe();
    let second = language.push(&strand, function(move || drop(probe)));
    wait(&second);
    assert_eq!(drops.count(), 1);
    assert!(Arc::ptr_eq(
        &first.failure().unwrap(),
        &second.failure().unwrap()
    ));
    language.close();
}

/// The lane asks for threads by itself, as it grows: nobody else does.
#[test]
fn promise_11_the_foreign_lane_asks_its_recruiter() {
    static EXECUTOR: std::sync::OnceLock<Executor> = std::sync::OnceLock::new();
    fn serve() {
        let mut thread = ForeignThread::arrive(EXECUTOR.get().unwrap());
        loop {
            match thread.next::<Function>() {
                Some(Next::Run(function)) => {
                    let outcome = (function.work)();
                    thread.finish(outcome.map_err(|reason| Fault::new(reason, None)));
                }
                Some(Next::Skip(..)) => thread.finish(Ok(())),
                None if thread.rest() => {}
                None => return,
            }
        }
    }
    fn recruit() -> std::io::Result<()> {
        std::thread::Builder::new().spawn(serve).map(drop)
    }
    let executor = EXECUTOR.get_or_init(|| {
        let recruiter = Some(recruit as clika_executor::Recruiter);
        let config = clika_executor::Config {
            workers: super::support::workers(),
            host_threads: 64,
            reporter: Box::new(|_| {}),
            recruiter,
        };
        Executor::new(config).unwrap()
    });
    let gate = Gate::default();
    for _ in 0..60 {
        let gate = gate.clone();
        executor
            .strand(None)
            .push(function(move || gate.pass()))
            .unwrap();
    }
    wait(&executor.strand(None).push_at(function(|| ())).unwrap());
    gate.await_waiting(60);
    gate.open();
    assert!(executor.drain(soon()));
    executor.close();
    eventually(|| executor.threads()[2] == 0);
}
