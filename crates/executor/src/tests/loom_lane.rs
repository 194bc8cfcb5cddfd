//! Models of lanes and of the executor's life: sleep, wake, block, retire, drain, close.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::loom_support::{
    Cell, Counted, check, check_with_fewer, config, executor, native, run, spawn, unmanned, wait,
};
use crate::executor::{Executor, Refused};
use crate::lane::{Crew, Job, Lane, Spawn};
use crate::strand::{Runner, serve};

fn hire(lane: Arc<Lane>) -> io::Result<()> {
    spawn(move || serve(&lane, Runner::Worker));
    Ok(())
}

/// An executor whose only worker is the calling thread.
fn manned_by_hand(spawn: Spawn) -> Executor {
    let executor = Executor::manned_by(config(1), Some(spawn), None);
    let lane = &executor.shared().native;
    assert!(lane.recruit());
    lane.arrive();
    executor
}

/// The worker falls asleep before, while and after a strand is queued.
#[test]
fn a_push_is_not_overlooked_by_a_worker_that_falls_asleep() {
    check(|| {
        let executor = executor(1);
        let log = Cell::new();
        for n in 0..2 {
            let log = log.clone();
            wait(
                &executor
                    .strand(None)
                    .push_at(native(move || log.step(n)))
                    .unwrap(),
            );
        }
        assert_eq!(log.get(), 2);
    });
}

/// An operation that waits for another strand while it holds the only worker is replaced.
#[test]
fn a_worker_that_waits_inside_an_operation_is_replaced() {
    check(|| {
        let executor = manned_by_hand(hire);
        let (outer, inner) = (executor.strand(None), executor.strand(None));
        let log = Cell::new();
        outer
            .push(native({
                let log = log.clone();
                move || {
                    let step = log.clone();
                    wait(&inner.push_at(native(move || step.step(0))).unwrap());
                    log.step(1);
                }
            }))
            .unwrap();
        let Some(Job::Turn(turn)) = executor.shared().native.take() else {
            unreachable!()
        };
        run(turn);
        assert_eq!(log.get(), 2);
    });
}

/// Threads that leave as soon as they idle: the lane never ends up with work and nobody awake.
#[test]
fn a_thread_that_retires_leaves_no_work_behind() {
    check_with_fewer(1, || {
        let executor = unmanned();
        let keep_idle = Some(Duration::ZERO);
        let lane = Lane::new(Crew {
            limit: 2,
            keep_idle,
            spawn: Some(hire),
            recruiter: None,
        });
        let log = Cell::new();
        let ends = [executor.strand(None), executor.strand(None)].map(|strand| {
            let log = log.clone();
            let end = strand.push_at(native(move || log.tally())).unwrap();
            let turn = executor.shared().native.steal(|_| true).unwrap();
            assert!(lane.push(Job::Turn(turn)).is_ok());
            end
        });
        ends.iter().for_each(wait);
        assert_eq!(log.get(), 2);
        assert!(lane.close().is_empty());
    });
}

#[test]
fn a_drained_executor_has_run_everything() {
    check(|| {
        let executor = executor(1);
        let (first, second) = (executor.strand(None), executor.strand(None));
        let log = Cell::new();
        first
            .push(native({
                let log = log.clone();
                move || {
                    let log = log.clone();
                    second.push(native(move || log.step(0))).unwrap();
                }
            }))
            .unwrap();
        assert!(executor.drain(None));
        assert_eq!(log.get(), 1);
    });
}

#[test]
fn two_threads_may_drain_at_once() {
    check(|| {
        let executor = Arc::new(executor(1));
        let log = Cell::new();
        executor
            .strand(None)
            .push(native({
                let log = log.clone();
                move || log.step(0)
            }))
            .unwrap();
        let drain = {
            let executor = executor.clone();
            move || {
                assert!(executor.drain(None));
                assert_eq!(log.get(), 1);
            }
        };
        let other = spawn(drain.clone());
        drain();
        other.join().unwrap();
    });
}

/// The push comes before the shutdown, after it, or in its midst: it runs, is refused, or is
/// skipped. What it captured is dropped once before anybody sees it done, and nobody waits for ever.
#[test]
fn a_push_that_meets_the_shutdown_is_run_refused_or_skipped() {
    check(|| {
        let executor = Arc::new(executor(1));
        let strand = executor.strand(None);
        let closer = spawn({
            let executor = executor.clone();
            move || executor.close()
        });
        let (ran, dropped) = (Cell::new(), Cell::new());
        let work = {
            let (ran, counted) = (ran.clone(), Counted(dropped.clone()));
            native(move || {
                ran.tally();
                drop(counted);
            })
        };
        match strand.push_at(work) {
            Err(refused) => assert!(matches!(refused, Refused::ShutDown)),
            Ok(end) => {
                wait(&end);
                assert_eq!(ran.get() == 1, end.failure().is_none());
            }
        }
        assert_eq!(dropped.get(), 1);
        closer.join().unwrap();
    });
}

/// A strand is parked on an operation that runs while the executor closes.
#[test]
fn a_parked_strand_is_buried_by_whoever_wakes_it() {
    check(|| {
        let executor = Arc::new(executor(1));
        let (first, second) = (executor.strand(None), executor.strand(None));
        let dropped = Cell::new();
        first.push(native(|| ())).unwrap();
        second.wait_for(&first.point()).unwrap();
        let counted = Counted(dropped.clone());
        second.push(native(move || drop(counted))).unwrap();
        let closer = spawn({
            let executor = executor.clone();
            move || executor.close()
        });
        wait(&second.point());
        assert_eq!(dropped.get(), 1);
        closer.join().unwrap();
        assert_eq!((first.pending(), second.pending()), (0, 0));
    });
}
