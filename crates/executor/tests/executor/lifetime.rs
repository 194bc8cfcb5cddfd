//! Promises 6, 8 and 10: what operations capture lives until they are done and is dropped once,
//! before they count as done, whatever becomes of them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use clika_executor::{Executor, Mark, Native, Point, Reason, Strand};

use super::support::{
    Drops, Gate, Probe, eventually, executor, failing, hold_workers, host, native, panic_quietly,
    soon, synchronize, wait, workers,
};

/// Checks at the very moment that `point` is reached that `drops` counts to one.
fn expect_dropped(point: &Point, drops: &Drops) {
    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    point.when_reached({
        let (seen, drops) = (seen.clone(), drops.clone());
        move || seen.store(drops.count(), SeqCst)
    });
    wait(point);
    eventually(|| seen.load(SeqCst) != usize::MAX);
    assert_eq!(
        seen.load(SeqCst),
        1,
        "not dropped once when it counted as done"
    );
    assert_eq!(drops.count(), 1);
}

/// One strand, held up until the test has looked at what it pushed.
fn pushed(push: impl FnOnce(&Arc<Strand>, Probe) -> Point) {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let (strand, drops) = (executor.strand(None), Drops::default());
    let point = push(&strand, drops.probe());
    assert_eq!(drops.count(), 0, "dropped before it could run");
    gate.open();
    expect_dropped(&point, &drops);
}

#[test]
fn promise_06_captured_values_are_dropped_before_success() {
    pushed(|strand, probe| strand.push_at(native(move || drop(probe))).unwrap());
    pushed(|strand, probe| strand.push_at(native(move || _ = &probe)).unwrap());
}

#[test]
fn promise_06_captured_values_too_large_for_the_queue_are_dropped_before_success() {
    pushed(|strand, probe| {
        let ballast = [7_u64; 1000];
        let work = native(move || {
            let _probe = &probe;
            assert_eq!(ballast.iter().sum::<u64>(), 7000);
        });
        strand.push_at(work).unwrap()
    });
}

#[test]
fn promise_06_captured_values_are_dropped_before_a_failure() {
    pushed(|strand, probe| {
        let work = move || {
            let _probe = &probe;
            Err(Reason::Foreign(
                Box::new("on purpose"),
                "it was told to".to_owned(),
            ))
        };
        strand.push_at(Native::new(work, None)).unwrap()
    });
}

#[test]
fn promise_06_captured_values_are_dropped_before_a_panic_counts() {
    pushed(|strand, probe| {
        let work = native(move || {
            let _probe = probe;
            panic_quietly("on purpose")
        });
        strand.push_at(work).unwrap()
    });
}

#[test]
fn promise_06_captured_values_are_dropped_before_a_skip_counts() {
    pushed(|strand, probe| {
        strand.push(failing("first")).unwrap();
        strand.push_at(native(move || drop(probe))).unwrap()
    });
}

#[test]
fn promise_06_captured_values_of_marks_and_loose_operations_are_dropped_once() {
    pushed(|strand, probe| {
        strand.push(failing("marks run all the same")).unwrap();
        strand.push_at(Mark::new(move || drop(probe))).unwrap()
    });
    let (executor, drops) = (executor(), Drops::default());
    let probes = [drops.probe(), drops.probe(), drops.probe()];
    let [first, second, third] = probes;
    executor.push_loose(native(move || drop(first))).unwrap();
    executor.push_loose(host(move || drop(second))).unwrap();
    executor
        .push_loose(native(move || {
            let _third = third;
            panic_quietly("nobody's")
        }))
        .unwrap();
    assert!(executor.drain(soon()));
    assert_eq!(drops.count(), 3);
}

#[test]
fn promise_06_captured_values_are_dropped_at_the_shutdown() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let (strand, drops) = (executor.strand(None), Drops::default());
    let points: Vec<_> = (0..100)
        .map(|_| {
            let probe = drops.probe();
            strand.push_at(native(move || drop(probe))).unwrap()
        })
        .collect();
    let loose = drops.probe();
    executor.push_loose(native(move || drop(loose))).unwrap();
    executor.close();
    points.iter().for_each(wait);
    assert_eq!(drops.count(), 101);
    gate.open();
}

#[test]
fn promise_06_a_refused_operation_is_dropped_at_once() {
    let (executor, drops) = (executor(), Drops::default());
    let strand = executor.strand(None);
    executor.close();
    let (first, second) = (drops.probe(), drops.probe());
    assert!(strand.push(native(move || drop(first))).is_err());
    assert!(executor.push_loose(native(move || drop(second))).is_err());
    assert_eq!(drops.count(), 2);
}

/// Panics when it is dropped, with a payload that does the same.
struct Grenade(#[expect(dead_code, reason = "counts that it is dropped")] Probe);

impl Drop for Grenade {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(Shrapnel));
    }
}

struct Shrapnel;

impl Drop for Shrapnel {
    fn drop(&mut self) {
        panic_quietly("a payload that panics when it is dropped");
    }
}

fn still_works(executor: &Executor) {
    let before = executor.threads();
    for _ in 0..100 {
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
        wait(&executor.strand(None).push_at(host(|| ())).unwrap());
    }
    assert!(executor.threads()[0] <= before[0].max(workers()));
    assert!(executor.drain(soon()));
}

#[test]
fn promise_08_a_panic_in_the_drop_of_a_captured_value_fails_the_operation_only() {
    let (executor, drops) = (executor(), Drops::default());
    let strand = executor.strand(None);
    let grenade = Grenade(drops.probe());
    let point = strand.push_at(native(move || drop(grenade))).unwrap();
    expect_dropped(&point, &drops);
    assert!(point.failure().is_some());
    still_works(&executor);
}

#[test]
fn promise_08_a_panic_in_the_drop_of_a_skipped_value_ends_there() {
    let (executor, drops) = (executor(), Drops::default());
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let first = strand.push_at(failing("first")).unwrap();
    let grenade = Grenade(drops.probe());
    let point = strand.push_at(native(move || drop(grenade))).unwrap();
    gate.open();
    expect_dropped(&point, &drops);
    assert!(Arc::ptr_eq(
        &point.failure().unwrap(),
        &first.failure().unwrap()
    ));
    still_works(&executor);
}

#[test]
fn promise_08_a_panic_in_a_drop_does_not_disturb_the_shutdown() {
    let (executor, drops) = (executor(), Drops::default());
    let gate = hold_workers(&executor, workers());
    let points: Vec<_> = (0..10)
        .map(|_| {
            let grenade = Grenade(drops.probe());
            let work = native(move || drop(grenade));
            executor.strand(None).push_at(work).unwrap()
        })
        .collect();
    let grenade = Grenade(drops.probe());
    executor.push_loose(native(move || drop(grenade))).unwrap();
    executor.close();
    points.iter().for_each(wait);
    assert_eq!(drops.count(), 11);
    gate.open();
}

#[test]
fn promise_08_a_panic_in_the_drop_of_a_loose_operation_ends_there() {
    let (executor, drops) = (executor(), Drops::default());
    let grenade = Grenade(drops.probe());
    executor.push_loose(native(move || drop(grenade))).unwrap();
    assert!(executor.drain(soon()));
    assert_eq!(drops.count(), 1);
    still_works(&executor);
}

#[derive(Debug)]
struct Bad(Drops);

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bad")
    }
}

impl std::error::Error for Bad {}

impl std::fmt::Debug for Drops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drops")
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        drop(self.0.probe());
        std::panic::resume_unwind(Box::new("an error that panics when it is dropped"));
    }
}

/// The failure is dropped by whoever drops it last, here a worker that enters the next epoch.
#[test]
fn promise_08_an_error_that_panics_when_it_is_dropped_kills_no_worker() {
    let (executor, drops) = (executor(), Drops::default());
    let strand = executor.strand(None);
    let bad = Bad(drops.clone());
    let work = move || Err(Reason::Returned(Arc::new(bad)));
    let point = strand.push_at(Native::new(work, None)).unwrap();
    wait(&point);
    point.acknowledge();
    drop(point);
    for _ in 0..10 {
        strand.push(native(|| ())).unwrap();
    }
    synchronize(&strand);
    assert_eq!(drops.count(), 1);
    still_works(&executor);
}

/// A second failure of the same epoch has nowhere to go.
#[test]
fn promise_08_an_error_that_nobody_keeps_is_dropped_once() {
    let (executor, drops) = (executor(), Drops::default());
    let bad = Bad(drops.clone());
    let work = move || Err(Reason::Returned(Arc::new(bad)));
    executor.push_loose(Native::new(work, None)).unwrap();
    assert!(executor.drain(soon()));
    eventually(|| drops.count() == 1);
    still_works(&executor);
}

#[test]
fn promise_08_the_payload_of_a_panic_is_dropped() {
    let (executor, drops) = (executor(), Drops::default());
    for _ in 0..100 {
        let payload = drops.probe();
        wait(
            &executor
                .strand(None)
                .push_at(native(move || panic_quietly(payload)))
                .unwrap(),
        );
    }
    assert_eq!(drops.count(), 100);
}

#[test]
fn promise_10_dropping_a_strand_neither_blocks_nor_cancels() {
    let executor = executor();
    let (gate, ran) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let drops = Drops::default();
    for _ in 0..100 {
        let strand = executor.strand(None);
        let (passed, ran, probe) = (gate.clone(), ran.clone(), drops.probe());
        strand.push(host(move || passed.pass())).unwrap();
        strand
            .push(native(move || drop((ran.fetch_add(1, SeqCst), probe))))
            .unwrap();
    }
    assert_eq!(ran.load(SeqCst), 0);
    gate.open();
    assert!(executor.drain(soon()));
    assert_eq!((ran.load(SeqCst), drops.count()), (100, 100));
}

/// Nothing keeps a strand that is done: neither its failure, nor its waits, nor its timeline.
#[test]
fn promise_10_a_finished_strand_is_freed() {
    let executor = executor();
    let (first, second) = (executor.strand(None), executor.strand(None));
    first.push(failing("kept by its epoch only")).unwrap();
    second.wait_for(&first.point()).unwrap();
    second.push(native(|| ())).unwrap();
    synchronize(&second);
    first.point().acknowledge();
    let weak = [Arc::downgrade(&first), Arc::downgrade(&second)];
    drop((first, second));
    eventually(|| weak.iter().all(|weak| weak.strong_count() == 0));
}

/// An executor that goes takes its threads with it.
#[test]
fn promise_12_threads_of_a_dropped_executor_end() {
    thread_local!(static HERE: RefCell<Option<Probe>> = const { RefCell::new(None) });
    let (executor, drops) = (executor(), Drops::default());
    let end = [true, false].map(|native| {
        let probe = drops.probe();
        let stay = move || HERE.set(Some(probe));
        let strand = executor.strand(None);
        match native {
            true => strand.push_at(super::support::native(stay)).unwrap(),
            false => strand.push_at(host(stay)).unwrap(),
        }
    });
    end.iter().for_each(wait);
    assert_eq!(drops.count(), 0);
    drop(executor);
    eventually(|| drops.count() == 2);
}
