//! Promise 1: order, nothing lost, nothing twice, fairness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use clika_executor::{Executor, Mark, Strand};

use super::support::{
    FOREVER, Log, count, eventually, executor, hold_workers, host, native, rounds, synchronize,
    threads, wait, with_workers, workers,
};

/// Operations that one turn runs before the others get theirs.
const BATCH: usize = 32;

#[test]
fn promise_01_work_starts_after_all_earlier_work_ended_and_sees_its_writes() {
    let executor = executor();
    let strand = executor.strand(None);
    let (value, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for n in 0..rounds(20_000) as u64 {
        let (value, wrong) = (value.clone(), wrong.clone());
        let work = move || {
            // Relaxed, and in two steps: only the strand's order makes this right.
            if value.load(Relaxed) != n {
                wrong.fetch_add(1, SeqCst);
            }
            value.store(n + 1, Relaxed);
        };
        match n % 16 {
            0 => strand.push(host(work)).unwrap(),
            1 => strand.push(Mark::new(work)).unwrap(),
            _ => strand.push(native(work)).unwrap(),
        };
    }
    synchronize(&strand);
    assert_eq!(
        (value.load(Relaxed), wrong.load(SeqCst)),
        (rounds(20_000) as u64, 0)
    );
}

#[test]
fn promise_01_each_threads_submissions_keep_their_order_and_none_is_lost() {
    const THREADS: usize = 4;
    let executor = executor();
    let strand = executor.strand(None);
    let last: Arc<[AtomicUsize; THREADS]> = Arc::default();
    let (inside, wrong) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let each = rounds(5000);
    threads(|threads| {
        for thread in 0..THREADS {
            let (strand, last, inside, wrong) = (&strand, &last, &inside, &wrong);
            threads.spawn(move || {
                for n in 1..=each {
                    let (last, inside, wrong) = (last.clone(), inside.clone(), wrong.clone());
                    let work = move || {
                        let alone = !inside.swap(true, SeqCst);
                        let next = last[thread].swap(n, SeqCst) + 1 == n;
                        inside.store(false, SeqCst);
                        wrong.fetch_add(u64::from(!alone || !next), SeqCst);
                    };
                    strand.push(native(work)).unwrap();
                }
            });
        }
    });
    synchronize(&strand);
    assert_eq!(wrong.load(SeqCst), 0);
    assert!(last.iter().all(|last| last.load(SeqCst) == each));
}

/// Numbers count what was submitted, and the point of an operation is reached with it.
#[test]
fn promise_01_numbers_and_points_count_operations() {
    let executor = executor();
    let strand = executor.strand(Some("counted"));
    assert_eq!((strand.pending(), strand.point().n()), (0, 0));
    assert!(strand.point().is_reached());
    let gate = hold_workers(&executor, workers());
    for n in 1..=100 {
        assert_eq!(strand.push(native(|| ())).unwrap(), n);
    }
    let (middle, end) = (strand.point().at(50), strand.point());
    assert_eq!((strand.pending(), middle.is_reached()), (100, false));
    gate.open();
    wait(&middle);
    wait(&end);
    assert_eq!((strand.pending(), end.n()), (0, 100));
}

/// All are ready when the worker comes back; the last in line waits for one batch of each. With a
/// single worker, since the system may stop one that has just taken the last strand.
#[test]
fn promise_01_a_ready_strand_waits_for_at_most_one_batch_of_each_other() {
    let executor = with_workers(1);
    let gate = hold_workers(&executor, 1);
    let log = Log::new();
    let crowd: Vec<_> = (0..5).map(|at| crowd_strand(&executor, &log, at)).collect();
    let last = executor.strand(None);
    last.push(native({
        let log = log.clone();
        move || log.add(usize::MAX)
    }))
    .unwrap();
    gate.open();
    synchronize(&last);
    crowd.iter().for_each(synchronize);
    let entries = log.take();
    let place = entries
        .iter()
        .position(|entry| *entry == usize::MAX)
        .unwrap();
    for at in 0..5 {
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

fn crowd_strand(executor: &Executor, log: &Log<usize>, at: usize) -> Arc<Strand> {
    let strand = executor.strand(None);
    for _ in 0..200 {
        let log = log.clone();
        strand.push(native(move || log.add(at))).unwrap();
    }
    strand
}

/// Work that goes on for ever, until it is told to stop.
fn endless(strand: &Arc<Strand>, stop: &Arc<AtomicBool>, each: Duration) {
    let (next, stop) = (strand.clone(), stop.clone());
    let work = move || {
        let end = Instant::now() + each;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        if !stop.load(SeqCst) {
            endless(&next, &stop, each);
        }
    };
    let _ = strand.push(native(work));
}

#[test]
fn promise_01_strands_that_never_run_dry_starve_no_other() {
    let executor = executor();
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 * workers() {
        let strand = executor.strand(None);
        (0..2 * BATCH).for_each(|_| endless(&strand, &stop, Duration::ZERO));
    }
    for _ in 0..100 {
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
    }
    stop.store(true, SeqCst);
    assert!(executor.drain(super::support::soon()));
}

/// Strands that hand over to each other stay with their worker, and still let others in.
#[test]
fn promise_01_strands_that_signal_each_other_for_ever_starve_no_other() {
    let executor = Arc::new(executor());
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..workers() {
        let pair = [executor.strand(None), executor.strand(None)];
        (0..4).for_each(|_| relay(&pair, &stop));
    }
    for _ in 0..100 {
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
    }
    stop.store(true, SeqCst);
    assert!(executor.drain(super::support::soon()));
}

/// The first waits for the second, works, and orders the next leg the other way round.
fn relay(pair: &[Arc<Strand>; 2], stop: &Arc<AtomicBool>) {
    let [first, second] = pair;
    let _ = first.wait_for(&second.point());
    let (back, stop) = ([second.clone(), first.clone()], stop.clone());
    let work = move || {
        if !stop.load(SeqCst) {
            relay(&back, &stop);
        }
    };
    let _ = first.push(native(work));
}

/// A thread that keeps asking whether a strand is done must not push it back in the line.
#[test]
fn promise_01_a_strand_that_is_polled_gets_its_turn_nonetheless() {
    let executor = with_workers(1);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let strand = executor.strand(None);
        (0..2 * BATCH).for_each(|_| endless(&strand, &stop, Duration::from_micros(100)));
    }
    let end = executor.strand(None).push_at(native(|| ())).unwrap();
    let deadline = Instant::now() + FOREVER / 4;
    let mut done = false;
    while !done && Instant::now() < deadline {
        done = end.wait().unwrap().until(Some(Instant::now()));
    }
    stop.store(true, SeqCst);
    assert!(done, "polling kept the strand from its turn");
    assert!(executor.drain(super::support::soon()));
}

#[test]
fn promise_02_ten_thousand_strands_are_distinct_and_cost_no_thread() {
    let executor = executor();
    let strands: Vec<_> = (0..10_000).map(|_| executor.strand(None)).collect();
    let mut ids: Vec<_> = strands.iter().map(|strand| strand.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), strands.len());
    let ran = Arc::new(AtomicUsize::new(0));
    for strand in &strands {
        let ran = ran.clone();
        strand.push(native(move || count(&ran))).unwrap();
    }
    strands.iter().for_each(synchronize);
    assert_eq!(ran.load(SeqCst), strands.len());
    let [native, host, foreign] = executor.threads();
    assert!(native <= workers() && host == 0 && foreign == 0);
}

/// Two strands run at the same time, if there are workers for both.
#[test]
fn promise_02_independent_strands_overlap() {
    let executor = with_workers(workers().max(2));
    let meeting = super::support::Gate::default();
    let strands = [executor.strand(None), executor.strand(None)];
    for strand in &strands {
        let meeting = meeting.clone();
        strand.push(native(move || meeting.pass())).unwrap();
    }
    meeting.await_waiting(2);
    meeting.open();
    strands.iter().for_each(synchronize);
}

/// However much is queued, submitting does not wait for it.
#[test]
fn promise_02_submitting_never_waits_for_the_work() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let strand = executor.strand(None);
    for _ in 0..50_000 {
        strand.push(native(|| ())).unwrap();
    }
    assert_eq!(strand.pending(), 50_000);
    gate.open();
    synchronize(&strand);
    eventually(|| strand.pending() == 0);
}

#[test]
fn promise_14_any_thread_may_use_any_strand() {
    let executor = executor();
    let strands: Vec<_> = (0..8).map(|_| executor.strand(None)).collect();
    let ran = Arc::new(AtomicUsize::new(0));
    threads(|threads| {
        for thread in 0..4 {
            let (strands, ran) = (&strands, &ran);
            threads.spawn(move || {
                for n in 0..rounds(500) {
                    let strand = &strands[(n * 7 + thread) % strands.len()];
                    let ran = ran.clone();
                    let end = strand.push_at(native(move || count(&ran))).unwrap();
                    if n % 50 == 0 {
                        wait(&end);
                    }
                }
            });
        }
    });
    strands.iter().for_each(synchronize);
    assert_eq!(ran.load(SeqCst), 4 * rounds(500));
}

/// No number of threads is too small.
#[test]
fn promise_17_an_executor_for_no_thread_gets_one() {
    let config = clika_executor::Config {
        workers: 0,
        host_threads: 0,
        reporter: Box::new(|_| {}),
        recruiter: None,
    };
    let executor = Executor::new(config).unwrap();
    for _ in 0..10 {
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
        wait(&executor.strand(None).push_at(host(|| ())).unwrap());
    }
}
