//! Stress: many executors, many strands, many operations, many threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use clika_executor::Strand;

use super::support::{
    Watchdog, count, executor, failing, host, let_threads_end, native, rounds, soon, synchronize,
    threads, wait, with_workers,
};

/// A fresh executor each time: start, push, wait, drop, in every order that timing gives.
#[test]
fn executors_come_and_go() {
    for round in 0..rounds(10_000) {
        let _watchdog = (round % 100 == 0).then(|| Watchdog::new(format!("round {round} and on")));
        let executor = with_workers(1 + round % 2);
        let strand = executor.strand(None);
        let point = strand.push_at(native(|| ())).unwrap();
        match round % 4 {
            0 => wait(&point),
            1 => assert!(executor.drain(soon())),
            2 => drop(strand),
            _ => executor.close(),
        }
    }
    let_threads_end();
}

#[test]
fn a_million_operations_run() {
    const COUNT: u64 = 1_000_000;
    for _ in 0..rounds(1) {
        let _watchdog = Watchdog::new("a million operations".into());
        let (executor, sum) = (executor(), Arc::new(AtomicU64::new(0)));
        let strand = executor.strand(None);
        for n in 1..=COUNT {
            let sum = sum.clone();
            // The strand's order makes two steps enough.
            strand
                .push(native(move || sum.store(sum.load(Relaxed) + n, Relaxed)))
                .unwrap();
        }
        synchronize(&strand);
        assert_eq!(sum.load(Relaxed), COUNT * (COUNT + 1) / 2);
    }
}

#[test]
fn ten_thousand_strands_work_at_once() {
    let _watchdog = Watchdog::new("ten thousand strands".into());
    let (executor, ran) = (executor(), Arc::new(AtomicUsize::new(0)));
    let strands: Vec<_> = (0..10_000).map(|_| executor.strand(None)).collect();
    for _ in 0..rounds(10) {
        for strand in &strands {
            let ran = ran.clone();
            strand.push(native(move || count(&ran))).unwrap();
        }
    }
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(Relaxed), 10_000 * rounds(10));
}

/// A ring of strands, each of which waits for the one before it, for ten laps.
#[test]
fn a_thousand_strands_signal_each_other_for_ten_laps() {
    for _ in 0..rounds(1) {
        let _watchdog = Watchdog::new("a ring of a thousand strands".into());
        let executor = executor();
        let ring: Vec<_> = (0..1000).map(|_| executor.strand(None)).collect();
        let step = Arc::new(AtomicUsize::new(0));
        for at in 0..10_000 {
            let strand = &ring[at % 1000];
            strand.wait_for(&ring[(at + 999) % 1000].point()).unwrap();
            let step = step.clone();
            strand
                .push(native(move || assert_eq!(step.fetch_add(1, Relaxed), at)))
                .unwrap();
        }
        assert!(executor.drain(soon()));
        assert_eq!(step.load(SeqCst), 10_000);
        assert!(ring.iter().all(|strand| strand.failure().is_none()));
    }
}

#[test]
fn a_million_hand_overs_between_two_strands() {
    for _ in 0..rounds(1) {
        let _watchdog = Watchdog::new("a million hand-overs".into());
        let executor = executor();
        let pair = [executor.strand(None), executor.strand(None)];
        let step = Arc::new(AtomicUsize::new(0));
        for at in 0..1_000_000 {
            let strand = &pair[at % 2];
            strand.wait_for(&pair[(at + 1) % 2].point()).unwrap();
            let step = step.clone();
            strand
                .push(native(move || step.store(step.load(Relaxed) + 1, Relaxed)))
                .unwrap();
        }
        assert!(executor.drain(soon()));
        assert_eq!(step.load(Relaxed), 1_000_000);
    }
}

/// Each strand waits for the one before it.
#[test]
fn ten_thousand_chained_waits() {
    let _watchdog = Watchdog::new("ten thousand chained waits".into());
    let executor = executor();
    let strands: Vec<_> = (0..10_000).map(|_| executor.strand(None)).collect();
    let step = Arc::new(AtomicUsize::new(0));
    for (at, strand) in strands.iter().enumerate() {
        if at > 0 {
            strand.wait_for(&strands[at - 1].point()).unwrap();
        }
        let step = step.clone();
        strand
            .push(native(move || step.store(step.load(Relaxed) + 1, Relaxed)))
            .unwrap();
    }
    synchronize(&strands[9999]);
    assert_eq!(step.load(Relaxed), 10_000);
}

/// One strand with many waits, each for another strand.
#[test]
fn a_strand_that_waits_for_ten_thousand_others() {
    let _watchdog = Watchdog::new("a strand that waits for ten thousand".into());
    let (executor, ran) = (executor(), Arc::new(AtomicUsize::new(0)));
    let gather = executor.strand(None);
    for _ in 0..10_000 {
        let ran = ran.clone();
        let work = native(move || count(&ran));
        gather
            .wait_for(&executor.strand(None).push_at(work).unwrap())
            .unwrap();
    }
    synchronize(&gather);
    assert_eq!(ran.load(Relaxed), 10_000);
}

/// Threads that live for one operation each.
#[test]
fn threads_come_and_go() {
    let _watchdog = Watchdog::new("thread churn".into());
    let (executor, ran) = (executor(), Arc::new(AtomicUsize::new(0)));
    let strands: Vec<_> = (0..8).map(|_| executor.strand(None)).collect();
    for round in 0..rounds(100) {
        threads(|threads| {
            for thread in 0..8 {
                let (strand, other) = (&strands[thread], &strands[(thread + round) % 8]);
                let ran = &ran;
                threads.spawn(move || {
                    strand.wait_for(&other.point()).unwrap();
                    let ran = ran.clone();
                    wait(&strand.push_at(native(move || count(&ran))).unwrap());
                });
            }
        });
    }
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(Relaxed), 8 * rounds(100));
}

/// Push and wait, from several threads on one strand: the sleep and wake of everybody, often.
#[test]
fn synchronizing_again_and_again() {
    let _watchdog = Watchdog::new("synchronizing again and again".into());
    let executor = executor();
    let strands = [executor.strand(None), executor.strand(None)];
    threads(|threads| {
        for thread in 0..4 {
            let strand: &Arc<Strand> = &strands[thread % 2];
            threads.spawn(move || {
                for n in 0..rounds(5_000) {
                    let end = match n % 8 {
                        0 => strand.push_at(host(|| ())),
                        _ => strand.push_at(native(|| ())),
                    };
                    wait(&end.unwrap());
                }
            });
        }
    });
}

/// Failures and acknowledgements of one strand from several threads.
#[test]
fn failing_and_acknowledging_again_and_again() {
    let _watchdog = Watchdog::new("failing and acknowledging".into());
    let executor = executor();
    let strand = executor.strand(None);
    let ran = Arc::new(AtomicUsize::new(0));
    threads(|threads| {
        for _ in 0..4 {
            let (strand, ran) = (&strand, &ran);
            threads.spawn(move || {
                for n in 0..rounds(2_000) {
                    if n % 3 == 0 {
                        strand.push(failing("again")).unwrap();
                    }
                    let (mine, all) = (Arc::new(AtomicUsize::new(0)), ran.clone());
                    let work = {
                        let mine = mine.clone();
                        native(move || {
                            mine.fetch_add(1, SeqCst);
                            all.fetch_add(1, SeqCst);
                        })
                    };
                    let end = strand.push_at(work).unwrap();
                    wait(&end);
                    assert_eq!(mine.load(SeqCst) == 1, end.failure().is_none());
                    end.acknowledge();
                }
            });
        }
    });
    assert!(ran.load(SeqCst) > 0);
    assert!(executor.drain(soon()));
}

/// Each strand's end starts the next by a call, which needs no stack of its own.
#[test]
fn a_chain_of_ten_thousand_calls() {
    let _watchdog = Watchdog::new("a chain of calls".into());
    let executor = executor();
    let strands: Vec<_> = (0..10_000).map(|_| executor.strand(None)).collect();
    let ran = Arc::new(AtomicUsize::new(0));
    for pair in strands.windows(2) {
        let (next, ran) = (pair[1].clone(), ran.clone());
        pair[0].point().at(1).when_reached(move || {
            next.push(clika_executor::Mark::new(move || count(&ran)))
                .unwrap();
        });
    }
    strands[0].push(native(|| ())).unwrap();
    wait(&strands[9999].point().at(1));
    assert_eq!(ran.load(SeqCst), 9_999);
}
