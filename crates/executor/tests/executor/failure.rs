//! Promises 7 and 8: the first failure wins, stays with its strand until it is acknowledged, and
//! kills nothing.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use clika_executor::{Failure, Mark, Native, Point, Reason, Strand};

use super::support::{
    Log, enter, eventually, executor, failing, hold_workers, host, native, panic_quietly,
    reporting, rounds, soon, synchronize, threads, wait, workers,
};

/// Submits work that notes whether it ran.
fn push(strand: &Arc<Strand>) -> (Point, Arc<AtomicBool>) {
    let ran = Arc::new(AtomicBool::new(false));
    let work = {
        let ran = ran.clone();
        native(move || ran.store(true, SeqCst))
    };
    (strand.push_at(work).unwrap(), ran)
}

fn message(failure: &Failure) -> String {
    failure.reason.to_string()
}

#[test]
fn promise_07_the_first_failure_wins_and_what_follows_is_skipped() {
    let executor = executor();
    let strand = executor.strand(Some("press"));
    let (before, ran_before) = push(&strand);
    let first = strand.push_at(failing("first")).unwrap();
    strand.push(failing("second")).unwrap();
    let (after, ran_after) = push(&strand);
    wait(&after);
    assert!(before.failure().is_none() && ran_before.load(SeqCst));
    assert!(!ran_after.load(SeqCst));
    let failure = first.failure().unwrap();
    assert_eq!(message(&failure), "failed: first");
    assert!(Arc::ptr_eq(&failure, &after.failure().unwrap()));
    assert_eq!(
        (failure.origin.strand.as_str(), failure.origin.operation),
        ("press", 2)
    );
}

#[test]
fn promise_07_what_is_submitted_after_the_acknowledgement_runs() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let first = strand.push_at(failing("first")).unwrap();
    let (before, ran_before) = push(&strand);
    gate.open();
    wait(&first);
    first.acknowledge();
    let (after, ran_after) = push(&strand);
    wait(&after);
    assert!(!ran_before.load(SeqCst) && before.failure().is_some());
    assert!(ran_after.load(SeqCst) && after.failure().is_none());
    assert!(first.failure().is_some(), "a point stays what it was");
}

/// Acknowledging marks the position of the call, not of the failure.
#[test]
fn promise_07_what_is_queued_when_the_failure_is_acknowledged_is_skipped() {
    let executor = executor();
    let strand = executor.strand(None);
    let first = strand.push_at(failing("first")).unwrap();
    wait(&first);
    let gate = hold_workers(&executor, workers());
    let queued: Vec<_> = (0..100).map(|_| push(&strand)).collect();
    first.acknowledge();
    let (after, ran) = push(&strand);
    gate.open();
    wait(&after);
    assert!(ran.load(SeqCst));
    assert!(
        queued
            .iter()
            .all(|(point, ran)| point.failure().is_some() && !ran.load(SeqCst))
    );
}

#[test]
fn promise_07_acknowledging_twice_changes_nothing() {
    let executor = executor();
    let strand = executor.strand(None);
    let first = strand.push_at(failing("first")).unwrap();
    wait(&first);
    first.acknowledge();
    let second = strand.push_at(failing("second")).unwrap();
    wait(&second);
    first.acknowledge();
    assert_eq!(message(&strand.failure().unwrap()), "failed: second");
    let (after, ran) = push(&strand);
    wait(&after);
    assert!(!ran.load(SeqCst) && after.failure().is_some());
}

#[test]
fn promise_07_nothing_but_acknowledging_acknowledges() {
    let executor = executor();
    let (fails, follows) = (executor.strand(None), executor.strand(None));
    let point = fails.push_at(failing("first")).unwrap();
    wait(&point);
    assert!(point.failure().is_some() && fails.failure().is_some());
    follows.wait_for(&point).unwrap();
    synchronize(&follows);
    follows.point().acknowledge();
    point.when_reached(|| ());
    wait(&fails.point());
    let (after, ran) = push(&fails);
    wait(&after);
    assert!(!ran.load(SeqCst));
}

#[test]
fn promise_07_strands_that_wait_for_a_failed_point_fail_with_its_origin() {
    let executor = executor();
    let strands: Vec<_> = (0..10).map(|_| executor.strand(None)).collect();
    let bystander = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let failed = strands[0].push_at(failing("origin")).unwrap();
    for pair in strands.windows(2) {
        pair[1].wait_for(&pair[0].point()).unwrap();
        push(&pair[1]);
    }
    let (unrelated, ran) = push(&bystander);
    gate.open();
    synchronize(&strands[9]);
    let (origin, last) = (failed.failure().unwrap(), strands[9].failure().unwrap());
    assert!(Arc::ptr_eq(&origin, &last));
    wait(&unrelated);
    assert!(ran.load(SeqCst) && unrelated.failure().is_none());
}

/// A wait that is submitted long after the failure brings it all the same.
#[test]
fn promise_07_a_wait_for_a_point_that_failed_long_ago_fails() {
    let executor = executor();
    let (fails, follows) = (executor.strand(None), executor.strand(None));
    let point = fails.push_at(failing("old")).unwrap();
    wait(&point);
    point.acknowledge();
    follows.wait_for(&point).unwrap();
    let (after, ran) = push(&follows);
    wait(&after);
    assert!(!ran.load(SeqCst));
    assert_eq!(message(&after.failure().unwrap()), "failed: old");
    let later = fails.point();
    assert!(
        later.failure().is_none(),
        "recorded after the acknowledgement"
    );
}

/// A failed strand skips work, but keeps its waits: what comes after the acknowledgement, and
/// whoever waits for the strand, still sees everything that was waited for.
#[test]
fn promise_05_a_strand_that_failed_keeps_its_waits() {
    let executor = executor();
    let (fails, slow) = (executor.strand(None), executor.strand(None));
    let (gate, value) = (
        super::support::Gate::default(),
        Arc::new(AtomicUsize::new(0)),
    );
    let written = {
        let (gate, value) = (gate.clone(), value.clone());
        let work = host(move || {
            gate.pass();
            value.store(1, SeqCst);
        });
        slow.push_at(work).unwrap()
    };
    let failed = fails.push_at(failing("first")).unwrap();
    fails.wait_for(&written).unwrap();
    let behind = fails.point();
    wait(&failed);
    failed.acknowledge();
    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    let end = {
        let seen = seen.clone();
        fails
            .push_at(native(move || seen.store(value.load(SeqCst), SeqCst)))
            .unwrap()
    };
    for _ in 0..100 {
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
    }
    assert!(!behind.is_reached() && !end.is_reached());
    gate.open();
    wait(&end);
    assert_eq!(seen.load(SeqCst), 1);
}

#[test]
fn promise_07_every_wait_under_way_sees_the_failure() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let point = strand.push_at(failing("seen by all")).unwrap();
    threads(|threads| {
        for _ in 0..8 {
            let point = point.clone();
            threads.spawn(move || {
                wait(&point);
                assert!(point.failure().is_some());
                point.acknowledge();
            });
        }
        gate.open();
    });
    let (after, ran) = push(&strand);
    wait(&after);
    assert!(ran.load(SeqCst));
}

#[test]
fn promise_07_the_runtimes_own_marks_run_behind_a_failure() {
    let executor = executor();
    let strand = executor.strand(None);
    strand.push(failing("first")).unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let end = strand
        .push_at(Mark::new({
            let ran = ran.clone();
            move || ran.store(true, SeqCst)
        }))
        .unwrap();
    wait(&end);
    assert!(ran.load(SeqCst) && end.failure().is_some());
}

#[test]
fn promise_07_a_failure_nobody_acknowledged_is_reported_once() {
    let log = Log::new();
    let executor = reporting(workers(), {
        let log = log.clone();
        move |failure| log.add(message(failure))
    });
    let [done, pending, seen, kept] = [(); 4].map(|()| executor.strand(None));
    wait(
        &done
            .push_at(failing("done before the last handle went"))
            .unwrap(),
    );
    done.orphan();
    let gate = hold_workers(&executor, workers());
    pending
        .push(failing("pending when the last handle went"))
        .unwrap();
    pending.orphan();
    gate.open();
    let point = seen.push_at(failing("acknowledged")).unwrap();
    wait(&point);
    point.acknowledge();
    seen.orphan();
    wait(&kept.push_at(failing("kept to the end")).unwrap());
    assert!(executor.drain(soon()));
    let mut reported = log.take();
    reported.sort();
    assert_eq!(
        reported,
        [
            "failed: done before the last handle went",
            "failed: pending when the last handle went"
        ]
    );
    let left = executor.take_unacknowledged();
    assert_eq!(
        left.iter()
            .map(|failure| message(failure))
            .collect::<Vec<_>>(),
        ["failed: kept to the end"]
    );
    assert!(executor.take_unacknowledged().is_empty());
    kept.orphan();
    assert!(log.take().is_empty());
}

/// Many failures that come and go do not pile up.
#[test]
fn promise_07_a_thousand_failures_are_each_acknowledged() {
    let executor = executor();
    let strand = executor.strand(None);
    for n in 1..=1000 {
        let point = strand.push_at(failing("again")).unwrap();
        wait(&point);
        assert_eq!(point.failure().unwrap().origin.operation, n);
        point.acknowledge();
    }
    assert!(strand.failure().is_none());
    assert!(executor.take_unacknowledged().is_empty());
}

#[test]
fn promise_08_a_panic_says_what_it_said_and_where_it_was_submitted() {
    let executor = executor();
    let strand = executor.strand(Some("stage"));
    let site = Location::caller();
    let work = || panic_quietly("a static text");
    let first = strand.push_at(Native::new(work, Some(site))).unwrap();
    wait(&first);
    let text = first.failure().unwrap().to_string();
    let expected = format!(
        "operation 1 of stream 'stage', submitted at {}:{} panicked: a static text",
        site.file(),
        site.line()
    );
    assert_eq!(text, expected);
    first.acknowledge();
    let second = strand
        .push_at(native(|| panic_quietly(String::from("an owned text"))))
        .unwrap();
    wait(&second);
    assert_eq!(
        message(&second.failure().unwrap()),
        "panicked: an owned text"
    );
    second.acknowledge();
    let third = strand.push_at(native(|| panic_quietly(5))).unwrap();
    wait(&third);
    assert_eq!(
        message(&third.failure().unwrap()),
        "panicked: a panic without a message"
    );
}

#[test]
fn promise_08_panics_cost_no_worker() {
    let executor = executor();
    let panics = rounds(10_000);
    let ran = Arc::new(AtomicUsize::new(0));
    for n in 0..panics {
        let ran = ran.clone();
        let work = move || {
            ran.fetch_add(1, SeqCst);
            panic_quietly("on purpose")
        };
        let strand = executor.strand(None);
        if n % 10 == 0 {
            strand.push(host(work))
        } else {
            strand.push(native(work))
        }
        .unwrap();
    }
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(SeqCst), panics);
    assert!(executor.threads()[0] <= workers());
}

#[test]
fn promise_07_a_failure_of_a_visit_fails_the_visits_behind_it() {
    let executor = executor();
    let strand = executor.inline_strand("inline");
    let inside = enter(&strand);
    let point = strand.point();
    let reason = Reason::Panicked("in the visit".into());
    inside.finish(Err(clika_executor::Fault::new(reason, None)));
    assert_eq!(message(&point.failure().unwrap()), "panicked: in the visit");
    let visitor = strand.visit().unwrap().unwrap();
    assert!(visitor.until(soon()));
    assert!(visitor.enter().is_err());
    point.acknowledge();
    enter(&strand).finish(Ok(()));
    eventually(|| strand.pending() == 0);
}

/// A part of an operation on an inline strand fails: so does the whole, at its own number.
#[test]
fn promise_07_a_failure_within_a_visit_fails_the_visit() {
    let executor = executor();
    let strand = executor.inline_strand("inline");
    let inside = enter(&strand);
    let n = strand.inside().unwrap();
    let reason = Reason::Panicked("a part".into());
    let failure = strand.fail_within(n, clika_executor::Fault::new(reason, None));
    let point = strand.point();
    inside.finish(Ok(()));
    assert!(point.is_reached());
    assert!(Arc::ptr_eq(&failure, &point.failure().unwrap()));
}
