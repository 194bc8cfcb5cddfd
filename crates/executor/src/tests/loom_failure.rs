//! Models of failure and acknowledgement: promise 7.

use std::sync::Arc;

use super::loom_support::{
    Cell, check, executor, failing, native, run, spawn, take, unmanned, wait, work_off,
};
use crate::{Point, Strand};

/// Submits an operation that notes whether it ran.
fn push(strand: &Arc<Strand>) -> (Point, Cell) {
    let ran = Cell::new();
    let work = {
        let ran = ran.clone();
        native(move || ran.tally())
    };
    (strand.push_at(work).expect("open"), ran)
}

/// An event that is recorded while the operation before it fails carries the failure, be it
/// recorded just before or just after; so does whoever waits for it.
#[test]
fn an_event_recorded_while_its_strand_fails_carries_the_failure() {
    check(|| {
        let executor = executor(1);
        let (fails, follows) = (executor.strand(Some("fails")), executor.strand(None));
        fails.push(failing()).unwrap();
        let event = fails.point();
        let ran = Cell::new();
        follows.wait_for(&event).unwrap();
        let end = follows
            .push_at(native({
                let ran = ran.clone();
                move || ran.tally()
            }))
            .unwrap();
        wait(&end);
        assert_eq!(end.failure().unwrap().origin.strand, "fails");
        assert_eq!(event.failure().unwrap().origin.operation, 1);
        assert_eq!(ran.get(), 0, "work behind the wait ran");
    });
}

/// Whoever sees the point reached sees the failure, without waiting.
#[test]
fn a_reached_point_shows_its_failure_at_once() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let point = strand.push_at(failing()).unwrap();
        if point.is_reached() {
            assert!(point.failure().is_some());
        }
        let told = Cell::new();
        point.clone().when_reached({
            let told = told.clone();
            move || told.set(usize::from(point.failure().is_some()))
        });
        assert!(executor.drain(None));
        assert_eq!(told.get(), 1);
    });
}

/// A thread pushes while another acknowledges: its operation was submitted before the
/// acknowledgement, is skipped and says so, or after it, and runs.
#[test]
fn an_operation_is_skipped_exactly_if_its_point_has_failed() {
    check(|| {
        let executor = Arc::new(unmanned());
        let strand = executor.strand(None);
        let first = strand.push_at(failing()).unwrap();
        let right = Cell::new();
        let pusher = spawn({
            let (executor, strand, right) = (executor.clone(), strand.clone(), right.clone());
            move || {
                let (end, ran) = push(&strand);
                end.clone().when_reached(move || {
                    assert_eq!(ran.get() == 1, end.failure().is_none());
                    right.tally();
                });
                work_off(&executor);
            }
        });
        work_off(&executor);
        wait(&first);
        first.acknowledge();
        let (last, ran) = push(&strand);
        last.clone().when_reached({
            let right = right.clone();
            move || {
                assert!(
                    last.failure().is_none(),
                    "submitted after the acknowledgement, yet failed"
                );
                assert_eq!(ran.get(), 1);
                right.tally();
            }
        });
        work_off(&executor);
        pusher.join().unwrap();
        assert_eq!(right.get(), 2);
    });
}

/// Two threads wait for the same failed point. One acknowledges before the other has looked.
#[test]
fn every_wait_under_way_raises_whoever_acknowledges_first() {
    check(|| {
        let executor = unmanned();
        let strand = executor.strand(None);
        let point = strand.push_at(failing()).unwrap();
        let turn = take(&executor);
        let synchronize = move || {
            wait(&point);
            assert!(
                point.failure().is_some(),
                "acknowledged before this wait was over"
            );
            point.acknowledge();
        };
        let other = spawn(synchronize.clone());
        run(turn);
        synchronize();
        other.join().unwrap();
        let (end, ran) = push(&strand);
        work_off(&executor);
        wait(&end);
        assert_eq!((ran.get(), end.failure().is_none()), (1, true));
    });
}

/// An acknowledgement that comes late, for the epoch before, leaves the next failure alone.
#[test]
fn a_late_acknowledgement_does_not_swallow_the_next_failure() {
    check(|| {
        let executor = unmanned();
        let strand = executor.strand(None);
        let first = strand.push_at(failing()).unwrap();
        work_off(&executor);
        let late = spawn({
            let first = first.clone();
            move || first.acknowledge()
        });
        first.acknowledge();
        let second = strand.push_at(failing()).unwrap();
        work_off(&executor);
        assert_eq!(second.failure().unwrap().origin.operation, 2);
        late.join().unwrap();
        assert!(
            strand.failure().is_some(),
            "the second failure went unnoticed"
        );
    });
}

/// What was submitted before the acknowledgement is skipped, even if the acknowledgement comes
/// before its turn.
#[test]
fn what_was_submitted_before_the_acknowledgement_is_skipped() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let first = strand.push_at(failing()).unwrap();
        let (second, ran) = push(&strand);
        wait(&first);
        first.acknowledge();
        wait(&second);
        assert_eq!(ran.get(), 0);
        assert_eq!(second.failure().unwrap().origin.operation, 1);
        assert!(strand.point().failure().is_none());
    });
}
