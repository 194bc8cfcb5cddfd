//! Models of strands: pushing, running, parking, waiting.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::loom_support::{
    Cell, Counted, check, executor, native, past, spawn, unmanned, wait,
};
use crate::sync::{Thread, current, park_until};
use crate::{AsyncWait, Mark};

#[test]
fn pushes_run_in_order_and_a_wait_sees_what_they_wrote() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let log = Cell::new();
        for n in 0..2 {
            let log = log.clone();
            strand.push(native(move || log.step(n))).unwrap();
        }
        wait(&strand.point());
        assert_eq!(log.get(), 2);
    });
}

/// A push meets a strand that is idle, ready, running, and about to go idle.
#[test]
fn pushes_of_two_threads_are_neither_lost_nor_run_twice() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let (ran, dropped) = (Cell::new(), Cell::new());
        let push = {
            let (strand, ran, dropped) = (strand.clone(), ran.clone(), dropped.clone());
            move || {
                let (ran, counted) = (ran.clone(), Counted(dropped.clone()));
                let work = native(move || {
                    ran.set(ran.get() + 1);
                    drop(counted);
                });
                strand.push_at(work).unwrap()
            }
        };
        let other = spawn({
            let push = push.clone();
            move || push()
        });
        wait(&push());
        wait(&other.join().unwrap());
        assert_eq!((ran.get(), dropped.get()), (2, 2));
        assert_eq!(strand.pending(), 0);
    });
}

/// The submitter runs marks itself, unless a worker has the strand.
#[test]
fn a_mark_runs_after_the_operation_before_it_on_whichever_thread() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let log = Cell::new();
        let step = |n| {
            let log = log.clone();
            move || log.step(n)
        };
        strand.push(Mark::new(step(0))).unwrap();
        strand.push(native(step(1))).unwrap();
        wait(&strand.push_at(Mark::new(step(2))).unwrap());
        assert_eq!(log.get(), 3);
    });
}

#[test]
fn two_threads_that_synchronize_both_wake() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let log = Cell::new();
        strand.push(native({
            let log = log.clone();
            move || log.step(0)
        }))
        .unwrap();
        let other = {
            let (point, log) = (strand.point(), log.clone());
            move || {
                wait(&point);
                assert_eq!(log.get(), 1);
            }
        };
        spawn(other.clone());
        other();
    });
}

/// The strand that waits parks before, while and after its wait is over.
#[test]
fn a_parked_strand_is_woken_once_and_sees_what_it_waited_for() {
    check(|| {
        let executor = executor(1);
        let (first, second) = (executor.strand(None), executor.strand(None));
        let log = Cell::new();
        first.push(native({
            let log = log.clone();
            move || log.step(0)
        }))
        .unwrap();
        second.wait_for(&first.point()).unwrap();
        second
            .push(native({
                let log = log.clone();
                move || log.step(1)
            }))
            .unwrap();
        wait(&second.point());
        assert_eq!(log.get(), 2);
    });
}

#[test]
fn two_strands_that_signal_each_other_alternate() {
    check(|| {
        let executor = executor(2);
        let (first, second) = (executor.strand(None), executor.strand(None));
        let log = Cell::new();
        let step = |n| {
            let log = log.clone();
            native(move || log.step(n))
        };
        first.push(step(0)).unwrap();
        second.wait_for(&first.point()).unwrap();
        second.push(step(1)).unwrap();
        first.wait_for(&second.point()).unwrap();
        first.push(step(2)).unwrap();
        wait(&first.point());
        assert_eq!(log.get(), 3);
    });
}

/// Two strands park on the same point; no worker is there, so the wait happens as this thread and
/// the other one pass the strands on.
#[test]
fn all_strands_parked_on_a_point_become_ready() {
    check(|| {
        let executor = unmanned();
        let signal = executor.inline_strand("signal");
        let visitor = signal.visit().unwrap().unwrap();
        let parked = [executor.strand(None), executor.strand(None)];
        let (log, point) = (Cell::new(), visitor.point().clone());
        let parker = spawn({
            let (parked, log) = (parked.clone(), log.clone());
            move || {
                for strand in parked {
                    strand.wait_for(&point).unwrap();
                    let log = log.clone();
                    wait(&strand.push_at(Mark::new(move || assert_eq!(log.get(), 1))).unwrap());
                }
            }
        });
        assert!(visitor.until(None));
        let inside = visitor.enter().unwrap();
        log.set(1);
        inside.finish(Ok(()));
        parker.join().unwrap();
        assert!(parked.iter().all(|strand| strand.pending() == 0));
    });
}

#[test]
fn a_wait_that_is_given_up_disturbs_no_other() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let log = Cell::new();
        strand.push(native({
            let log = log.clone();
            move || log.step(0)
        }))
        .unwrap();
        let point = strand.point();
        spawn({
            let point = point.clone();
            move || {
                let mut wait = point.wait().unwrap();
                let _ = wait.until(past());
            }
        });
        wait(&point);
        assert_eq!(log.get(), 1);
    });
}

#[test]
fn a_call_on_a_point_happens_once_and_sees_what_is_before_it() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let (log, called) = (Cell::new(), Cell::new());
        strand.push(native({
            let log = log.clone();
            move || log.step(0)
        }))
        .unwrap();
        strand.point().when_reached({
            let called = called.clone();
            move || {
                assert_eq!(log.get(), 1);
                called.tally();
            }
        });
        assert!(executor.drain(None));
        assert_eq!(called.get(), 1);
    });
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A task is polled again with another waker, as one that moved between threads is.
#[test]
fn a_task_that_awaits_a_point_is_woken_by_its_latest_waker() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let log = Cell::new();
        strand.push(native({
            let log = log.clone();
            move || log.step(0)
        }))
        .unwrap();
        let mut task = pin!(AsyncWait::new(strand.point()));
        let first = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let waker = Waker::from(Arc::new(Unparks(current())));
        let mut context = Context::from_waker(&waker);
        while first.is_pending() && task.as_mut().poll(&mut context) == Poll::Pending {
            park_until(None);
        }
        assert_eq!(log.get(), 1);
    });
}
