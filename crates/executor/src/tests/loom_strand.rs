//! Models of strands: pushing, running, parking, waiting.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::loom_support::{
    Cell, Counted, check, enter, executor, native, past, run, spawn, take, unmanned, wait, work_off,
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
        let executor = Arc::new(unmanned());
        let strand = executor.strand(None);
        let (ran, done) = (Cell::new(), Cell::new());
        let push = {
            let (executor, ran, done) = (executor.clone(), ran.clone(), done.clone());
            move || {
                let dropped = Cell::new();
                let (own, ran, counted) = (Cell::new(), ran.clone(), Counted(dropped.clone()));
                let work = {
                    let own = own.clone();
                    native(move || {
                        ran.set(ran.get() + 1);
                        own.tally();
                        drop(counted);
                    })
                };
                strand.push_at(work).unwrap().when_reached(move || {
                    assert_eq!((own.get(), dropped.get()), (1, 1));
                    done.tally();
                });
                work_off(&executor);
            }
        };
        let other = spawn(push.clone());
        push();
        other.join().unwrap();
        assert_eq!((ran.get(), done.get()), (2, 2));
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
        let executor = unmanned();
        let log = Cell::new();
        let point = executor
            .strand(None)
            .push_at(native({
                let log = log.clone();
                move || log.step(0)
            }))
            .unwrap();
        let turn = take(&executor);
        for _ in 0..2 {
            let (point, log) = (point.clone(), log.clone());
            spawn(move || {
                wait(&point);
                assert_eq!(log.get(), 1);
            });
        }
        run(turn);
    });
}

/// The strand that waits parks before, while and after its wait is over.
#[test]
fn a_parked_strand_is_woken_once_and_sees_what_it_waited_for() {
    check(|| {
        let executor = executor(1);
        let (first, second) = (executor.strand(None), executor.strand(None));
        let log = Cell::new();
        first
            .push(native({
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

/// The strand parks at the first position, at the second, at both, or at neither.
#[test]
fn an_operation_behind_two_positions_runs_after_both() {
    check(|| {
        let executor = Arc::new(unmanned());
        let signals = [
            executor.inline_strand("first"),
            executor.inline_strand("second"),
        ];
        let insides = signals.each_ref().map(enter);
        let (logs, ran) = ([Cell::new(), Cell::new()], Cell::new());
        let positions = signals
            .each_ref()
            .map(|signal| signal.point().position().clone());
        let parker = spawn({
            let (executor, logs, ran) = (executor.clone(), logs.clone(), ran.clone());
            move || {
                let work = native(move || {
                    assert_eq!(logs.map(|log| log.get()), [1, 1]);
                    ran.tally();
                });
                executor
                    .strand(None)
                    .push_after(positions, work)
                    .map(drop)
                    .unwrap();
                work_off(&executor);
            }
        });
        for (inside, log) in insides.into_iter().zip(&logs) {
            log.set(1);
            inside.finish(Ok(()));
        }
        parker.join().unwrap();
        work_off(&executor);
        assert_eq!(ran.get(), 1);
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

/// Two strands park before, while and after the point that they wait for is reached.
#[test]
fn all_strands_parked_on_a_point_become_ready() {
    check(|| {
        let executor = Arc::new(unmanned());
        let signal = executor.inline_strand("signal");
        let inside = enter(&signal);
        let (log, ran) = (Cell::new(), Cell::new());
        let parker = spawn({
            let (executor, point) = (executor.clone(), signal.point());
            let (log, ran) = (log.clone(), ran.clone());
            move || {
                for _ in 0..2 {
                    let strand = executor.strand(None);
                    strand.wait_for(&point).unwrap();
                    let (log, ran) = (log.clone(), ran.clone());
                    let work = native(move || {
                        assert_eq!(log.get(), 1);
                        ran.tally();
                    });
                    strand.push(work).unwrap();
                }
            }
        });
        log.set(1);
        inside.finish(Ok(()));
        parker.join().unwrap();
        work_off(&executor);
        assert_eq!(ran.get(), 2);
    });
}

#[test]
fn a_wait_that_is_given_up_disturbs_no_other() {
    check(|| {
        let executor = unmanned();
        let log = Cell::new();
        let point = executor
            .strand(None)
            .push_at(native({
                let log = log.clone();
                move || log.step(0)
            }))
            .unwrap();
        let turn = take(&executor);
        spawn({
            let point = point.clone();
            move || {
                wait(&point);
                assert_eq!(log.get(), 1);
            }
        });
        spawn(move || {
            let mut wait = point.wait().unwrap();
            let _ = wait.until(past());
        });
        run(turn);
    });
}

#[test]
fn a_call_on_a_point_happens_once_and_sees_what_is_before_it() {
    check(|| {
        let executor = executor(1);
        let strand = executor.strand(None);
        let (log, called) = (Cell::new(), Cell::new());
        strand
            .push(native({
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
        strand
            .push(native({
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
