//! One operation shared out over idle workers: each index once, nothing outlives the call, and
//! nothing else runs inside it.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;

use clika_executor::Executor;
use clika_executor::sync::Mutex;

use super::support::{
    count, eventually, executor, hold_workers, host, native, panic_quietly, rounds, soon,
    synchronize, threads, wait, with_workers, workers,
};

/// Executors of several sizes.
fn executors() -> impl Iterator<Item = Executor> {
    [1, 2, 4].into_iter().map(with_workers)
}

/// Calls it and checks that each index comes once, in ranges that are not empty or too long.
#[track_caller]
fn expect_each_index_once(executor: &Executor, indices: usize, grain: usize) {
    let calls: Vec<_> = (0..indices).map(|_| AtomicUsize::new(0)).collect();
    executor.parallel_for(indices, grain, |range| {
        assert!(!range.is_empty() && range.len() <= grain.max(1));
        calls[range].iter().for_each(count);
    });
    let wrong = calls.iter().position(|calls| calls.load(SeqCst) != 1);
    assert_eq!(wrong, None, "of {indices} indices by {grain}");
}

/// What comes out of a call that panics.
#[track_caller]
fn expect_panic<T: 'static>(call: impl FnOnce()) -> Box<T> {
    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    payload.downcast().expect("the payload of the function")
}

#[test]
fn every_index_comes_exactly_once_in_ranges_of_at_most_the_grain() {
    for executor in executors() {
        for indices in [0, 1, 2, 3, 16, 17, 1000] {
            for grain in [0, 1, 2, 3, 16, 999, 1000, 1001, usize::MAX] {
                for _ in 0..rounds(3) {
                    expect_each_index_once(&executor, indices, grain);
                }
            }
        }
    }
}

#[test]
fn the_largest_ranges_do_not_overflow() {
    const HALF: usize = usize::MAX / 2 + 1;
    for executor in executors() {
        let ranges = Mutex::new(Vec::new());
        executor.parallel_for(usize::MAX, HALF, |range| ranges.lock().push(range));
        let mut ranges = ranges.into_inner();
        ranges.sort_by_key(|range| range.start);
        assert_eq!(ranges, [0..HALF, HALF..usize::MAX]);
    }
}

#[test]
fn borrowed_data_is_written_in_disjoint_parts() {
    const GRAIN: usize = 10;
    for executor in executors() {
        let mut numbers = vec![0; 1234];
        let parts: Vec<_> = numbers.chunks_mut(GRAIN).map(Mutex::new).collect();
        executor.parallel_for(1234, GRAIN, |range| {
            let mut part = parts[range.start / GRAIN].try_lock().unwrap();
            for (number, index) in part.iter_mut().zip(range) {
                *number = index;
            }
        });
        drop(parts);
        assert!(numbers.into_iter().eq(0..1234));
    }
}

/// Two ranges that wait for each other, so the idle worker does come.
#[test]
fn an_idle_worker_takes_part() {
    let executor = with_workers(2);
    let (came, ran_by) = (AtomicUsize::new(0), Mutex::new(Vec::<ThreadId>::new()));
    executor.parallel_for(2, 1, |_| {
        count(&came);
        eventually(|| came.load(SeqCst) == 2);
        ran_by.lock().push(std::thread::current().id());
    });
    let ran_by = ran_by.into_inner();
    assert!(ran_by.contains(&std::thread::current().id()));
    assert_ne!(ran_by[0], ran_by[1]);
}

#[test]
fn with_all_workers_busy_the_caller_does_all_of_it() {
    for workers in [1, 2, 4] {
        let executor = with_workers(workers);
        let gate = hold_workers(&executor, workers);
        let caller = std::thread::current().id();
        let calls = AtomicUsize::new(0);
        executor.parallel_for(100, 3, |range| {
            assert_eq!(std::thread::current().id(), caller);
            calls.fetch_add(range.len(), SeqCst);
        });
        assert_eq!(calls.into_inner(), 100);
        gate.open();
        // Whoever comes late finds nothing to do.
        assert!(executor.drain(soon()));
    }
}

/// The ranges that others run are over too: none is under way, and each has been called.
#[test]
fn a_panic_comes_out_when_all_ranges_have_ended() {
    for executor in executors() {
        for panics_at in [0, 50, 99] {
            for _ in 0..rounds(20) {
                let (begun, inside) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let payload = expect_panic::<String>(|| {
                    executor.parallel_for(100, 3, |range| {
                        count(&begun);
                        count(&inside);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        if range.contains(&panics_at) {
                            panic_quietly(format!("at {panics_at}"));
                        }
                    });
                });
                assert_eq!(*payload, format!("at {panics_at}"));
                assert_eq!((begun.into_inner(), inside.into_inner()), (34, 0));
            }
        }
        expect_each_index_once(&executor, 100, 3);
    }
}

#[test]
fn of_many_panics_one_comes_out() {
    for executor in executors() {
        let begun = AtomicUsize::new(0);
        let payload = expect_panic::<Range<usize>>(|| {
            executor.parallel_for(100, 1, |range| {
                count(&begun);
                panic_quietly(range);
            });
        });
        assert_eq!(payload.len(), 1);
        assert_eq!(begun.into_inner(), 100);
    }
}

/// A payload that panics when it is dropped.
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        panic_quietly("dropped");
    }
}

#[test]
fn payloads_that_panic_when_dropped_cut_nothing_short() {
    for executor in executors() {
        let begun = AtomicUsize::new(0);
        let _first = ManuallyDrop::new(expect_panic::<Loud>(|| {
            executor.parallel_for(100, 1, |_| {
                count(&begun);
                panic_quietly(Loud);
            });
        }));
        assert_eq!(begun.into_inner(), 100);
        expect_each_index_once(&executor, 100, 3);
        assert!(executor.drain(soon()));
    }
}

#[test]
fn a_panic_inside_an_operation_fails_its_strand() {
    let executor = Arc::new(executor());
    let strand = executor.strand(None);
    let inner = executor.clone();
    let work = native(move || inner.parallel_for(10, 1, |_| panic_quietly("in a range")));
    let end = strand.push_at(work).unwrap();
    wait(&end);
    let failure = end.failure().unwrap();
    assert_eq!(failure.reason.to_string(), "panicked: in a range");
}

#[test]
fn operations_of_several_strands_share_themselves_out_at_once() {
    for executor in executors() {
        let (executor, ran) = (Arc::new(executor), Arc::new(AtomicUsize::new(0)));
        let strands: Vec<_> = (0..6).map(|_| executor.strand(None)).collect();
        for n in 0..rounds(20) {
            for (at, strand) in strands.iter().enumerate() {
                let (inner, ran) = (executor.clone(), ran.clone());
                let work = move || {
                    expect_each_index_once(&inner, 100 + n, 7);
                    count(&ran);
                };
                match at % 3 {
                    0 => strand.push(host(work)),
                    _ => strand.push(native(work)),
                }
                .unwrap();
            }
        }
        strands.iter().for_each(synchronize);
        assert!(strands.iter().all(|strand| strand.failure().is_none()));
        assert_eq!(ran.load(SeqCst), 6 * rounds(20));
    }
}

#[test]
fn a_range_may_share_itself_out() {
    for executor in executors() {
        for _ in 0..rounds(20) {
            let calls: Vec<_> = (0..8 * 8 * 8).map(|_| AtomicUsize::new(0)).collect();
            executor.parallel_for(8, 1, |outer| {
                executor.parallel_for(8, 3, |middle| {
                    for middle in middle {
                        let start = (outer.start * 8 + middle) * 8;
                        executor.parallel_for(8, 2, |inner| {
                            calls[start..][inner].iter().for_each(count);
                        });
                    }
                });
            });
            assert!(calls.iter().all(|calls| calls.load(SeqCst) == 1));
        }
    }
}

#[test]
fn several_threads_that_are_no_workers_may_call_at_once() {
    for executor in executors() {
        threads(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..rounds(50) {
                        expect_each_index_once(&executor, 64, 5);
                    }
                });
            }
        });
    }
}

#[test]
fn after_the_shutdown_the_caller_does_all_of_it() {
    for executor in executors() {
        executor.close();
        let caller = std::thread::current().id();
        executor.parallel_for(10, 1, |_| assert_eq!(std::thread::current().id(), caller));
        expect_each_index_once(&executor, 1000, 7);
        assert!(executor.drain(soon()));
    }
}

#[test]
fn a_shutdown_meanwhile_changes_nothing() {
    for _ in 0..rounds(100) {
        let executor = with_workers(2);
        threads(|threads| {
            threads.spawn(|| executor.close());
            expect_each_index_once(&executor, 64, 1);
        });
    }
}

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// The caller waits for a helper while the only free worker could be the caller itself.
#[test]
fn the_caller_runs_no_other_operation_while_it_waits() {
    let executor = Arc::new(with_workers(2));
    for _ in 0..rounds(50) {
        let others: Arc<Vec<_>> = Arc::new((0..8).map(|_| executor.strand(None)).collect());
        let ran_inside = Arc::new(AtomicBool::new(false));
        let work = {
            let (executor, others, ran_inside) =
                (executor.clone(), others.clone(), ran_inside.clone());
            native(move || {
                IS_CALLING.set(true);
                let (caller, came) = (std::thread::current().id(), AtomicUsize::new(0));
                executor.parallel_for(2, 1, |_| {
                    count(&came);
                    eventually(|| came.load(SeqCst) == 2);
                    if std::thread::current().id() == caller {
                        return;
                    }
                    for other in others.iter() {
                        let ran_inside = ran_inside.clone();
                        let look = move || {
                            ran_inside.fetch_or(IS_CALLING.get(), SeqCst);
                        };
                        other.push(native(look)).unwrap();
                    }
                    // Time for the caller to do wrong.
                    (0..200).for_each(|_| std::thread::yield_now());
                    assert!(others.iter().all(|other| other.pending() == 1));
                });
                IS_CALLING.set(false);
            })
        };
        let end = executor.strand(None).push_at(work).unwrap();
        wait(&end);
        assert!(end.failure().is_none(), "{:?}", end.failure());
        others.iter().for_each(synchronize);
        assert!(!ran_inside.load(SeqCst));
    }
}

/// As many as there are workers, so that each of them waits for helpers that cannot come.
#[test]
fn operations_on_all_workers_do_not_wait_for_each_other() {
    let executor = Arc::new(executor());
    for _ in 0..rounds(50) {
        let came = Arc::new(AtomicUsize::new(0));
        for _ in 0..workers() {
            let (inner, came) = (executor.clone(), came.clone());
            let work = move || {
                count(&came);
                eventually(|| came.load(SeqCst) == workers());
                expect_each_index_once(&inner, 100, 1);
            };
            executor.strand(None).push(native(work)).unwrap();
        }
        assert!(executor.drain(soon()));
        assert!(executor.take_unacknowledged().is_empty());
    }
}
