//! Promises 5 and 9: points, waiting for them, and giving up.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use clika_executor::AsyncWait;

use super::support::{
    Gate, count, eventually, executor, failing, hold_workers, host, native, rounds, soon,
    synchronize, threads, wait, with_workers, workers,
};

#[test]
fn promise_05_a_point_marks_what_was_submitted_before_it_and_nothing_after() {
    let executor = executor();
    let strand = executor.strand(None);
    strand.push(native(|| ())).unwrap();
    let point = strand.point();
    let gate = Gate::default();
    strand
        .push(host({
            let gate = gate.clone();
            move || gate.pass()
        }))
        .unwrap();
    wait(&point);
    assert!(point.is_reached() && !strand.point().is_reached());
    gate.open();
}

#[test]
fn promise_05_a_point_is_reached_failed_or_not() {
    let executor = executor();
    let strand = executor.strand(None);
    let point = strand.push_at(failing("on purpose")).unwrap();
    assert!(point.wait().unwrap().until(soon()));
    assert!(point.is_reached());
    assert!(AsyncWait::new(point.clone()).point().is_reached());
}

#[test]
fn promise_05_strands_that_wait_hold_no_thread() {
    let executor = executor();
    let (gate, signal) = (Gate::default(), executor.strand(None));
    signal
        .push(host({
            let gate = gate.clone();
            move || gate.pass()
        }))
        .unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..1000 {
        let strand = executor.strand(None);
        strand.wait_for(&signal.point()).unwrap();
        let ran = ran.clone();
        strand.push(native(move || count(&ran))).unwrap();
    }
    synchronize_another(&executor);
    assert_eq!(ran.load(SeqCst), 0);
    let [native, host, _] = executor.threads();
    assert!(native <= workers() && host <= 2);
    gate.open();
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(SeqCst), 1000);
}

fn synchronize_another(executor: &clika_executor::Executor) {
    wait(&executor.strand(None).push_at(native(|| ())).unwrap());
}

/// A wait takes the mark as it was at the call.
#[test]
fn promise_05_a_wait_does_not_wait_for_what_is_submitted_later() {
    let executor = executor();
    let (signal, follows) = (executor.strand(None), executor.strand(None));
    let gate = Gate::default();
    signal.push(native(|| ())).unwrap();
    follows.wait_for(&signal.point()).unwrap();
    signal
        .push(host({
            let gate = gate.clone();
            move || gate.pass()
        }))
        .unwrap();
    follows.push(native(|| ())).unwrap();
    synchronize(&follows);
    gate.open();
}

#[test]
fn promise_05_a_strand_that_waits_for_itself_just_goes_on() {
    let executor = executor();
    let strand = executor.strand(None);
    strand.push(native(|| ())).unwrap();
    strand.wait_for(&strand.point()).unwrap();
    strand.push(native(|| ())).unwrap();
    synchronize(&strand);
}

#[test]
fn promise_05_calls_on_a_point_are_made_once_each() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let called = Arc::new(AtomicUsize::new(0));
    let call = || {
        let called = called.clone();
        move || count(&called)
    };
    let point = strand.push_at(native(|| ())).unwrap();
    (0..100).for_each(|_| point.when_reached(call()));
    assert_eq!(called.load(SeqCst), 0);
    gate.open();
    wait(&point);
    eventually(|| called.load(SeqCst) == 100);
    point.when_reached(call());
    assert_eq!(
        called.load(SeqCst),
        101,
        "reached, and yet not called at once"
    );
    assert!(executor.drain(soon()));
    assert_eq!(called.load(SeqCst), 101);
}

/// A call that panics, with a payload that does so again, stops neither the others nor the strand.
#[test]
fn promise_08_a_call_on_a_point_that_panics_disturbs_nobody() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("again"));
        }
    }
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let point = strand.push_at(native(|| ())).unwrap();
    let called = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let called = called.clone();
        point.when_reached(|| std::panic::resume_unwind(Box::new(Again)));
        point.when_reached(move || count(&called));
    }
    strand.push(native(|| ())).unwrap();
    gate.open();
    synchronize(&strand);
    eventually(|| called.load(SeqCst) == 3);
    assert!(executor.drain(soon()));
}

#[test]
fn promise_09_a_wait_that_runs_out_of_time_can_go_on() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let point = strand.push_at(native(|| ())).unwrap();
    let mut waiting = point.wait().unwrap();
    assert!(!waiting.until(Some(Instant::now())));
    let deadline = Instant::now() + Duration::from_millis(30);
    assert!(!waiting.until(Some(deadline)));
    assert!(Instant::now() >= deadline);
    gate.open();
    assert!(waiting.until(soon()));
    assert!(
        waiting.until(soon()),
        "a wait that is over may be asked again"
    );
}

#[test]
fn promise_09_waits_that_are_given_up_leave_nothing_behind() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let points: Vec<_> = (0..100)
        .map(|_| strand.push_at(native(|| ())).unwrap())
        .collect();
    threads(|threads| {
        for thread in 0..4 {
            let points = &points;
            threads.spawn(move || {
                for n in 0..rounds(500) {
                    let mut waiting = points[(n * 13 + thread) % 100].wait().unwrap();
                    let pause = Duration::from_micros((n % 3) as u64 * 20);
                    let _ = waiting.until(Some(Instant::now() + pause));
                }
            });
        }
        threads.spawn(|| wait(&points[99]));
        gate.open();
    });
    synchronize(&strand);
}

/// Waiters of many points, registered in disorder, are each woken.
#[test]
fn promise_09_all_waiters_wake_whatever_they_wait_for() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let points: Vec<_> = (0..64)
        .map(|_| strand.push_at(native(|| ())).unwrap())
        .collect();
    threads(|threads| {
        for n in 0..64 {
            let point = &points[n * 37 % 64];
            threads.spawn(move || wait(point));
        }
        gate.open();
    });
}

struct Woken(AtomicUsize, std::thread::Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        self.1.unpark();
    }
}

#[test]
fn promise_05_a_task_that_awaits_a_point_is_woken_once_by_its_latest_waker() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let point = strand.push_at(native(|| ())).unwrap();
    let wakers = [(); 2].map(|()| Arc::new(Woken(AtomicUsize::new(0), std::thread::current())));
    let mut task = pin!(AsyncWait::new(point.clone()));
    for waker in &wakers {
        let waker = Waker::from(waker.clone());
        assert_eq!(
            task.as_mut().poll(&mut Context::from_waker(&waker)),
            Poll::Pending
        );
    }
    gate.open();
    eventually(|| wakers[1].0.load(SeqCst) == 1);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(()));
    assert!(executor.drain(soon()));
    assert_eq!(wakers.map(|waker| waker.0.load(SeqCst)), [0, 1]);
}

#[test]
fn promise_05_a_dropped_task_is_not_woken() {
    let executor = executor();
    let strand = executor.strand(None);
    let gate = hold_workers(&executor, workers());
    let point = strand.push_at(native(|| ())).unwrap();
    let woken = Arc::new(Woken(AtomicUsize::new(0), std::thread::current()));
    let waker = Waker::from(woken.clone());
    {
        let mut task = pin!(AsyncWait::new(point.clone()));
        assert!(
            task.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    drop(waker);
    assert_eq!(
        Arc::strong_count(&woken),
        1,
        "a dropped task keeps its waker"
    );
    gate.open();
    wait(&point);
    assert!(executor.drain(soon()));
    assert_eq!(woken.0.load(SeqCst), 0);
}

/// With one worker, an operation that waits for another strand lets that run.
#[test]
fn promise_09_an_operation_may_wait_for_another_strand_with_one_worker() {
    let executor = Arc::new(with_workers(1));
    let end = nest(&executor, 20);
    wait(&end);
    assert!(executor.drain(soon()));
}

/// Submits an operation that waits for one that waits, so many levels deep.
fn nest(executor: &Arc<clika_executor::Executor>, levels: usize) -> clika_executor::Point {
    let inner = executor.clone();
    let work = native(move || {
        if levels > 0 {
            assert!(nest(&inner, levels - 1).wait().unwrap().until(soon()));
        }
    });
    executor.strand(None).push_at(work).unwrap()
}

/// Once the waits are over, no more threads work than there were to be.
#[test]
fn promise_09_replacements_leave_when_the_waits_are_over() {
    let executor = Arc::new(with_workers(1));
    wait(&nest(&executor, 20));
    assert!(executor.drain(soon()));
    eventually(|| {
        synchronize_another(&executor);
        executor.threads()[0] <= 1
    });
}

/// Waits that an operation holds at the same time use up no more than its own thread.
#[test]
fn promise_09_an_operation_may_hold_several_waits() {
    let executor = Arc::new(with_workers(1));
    let (others, gate) = (executor.clone(), Gate::default());
    let end = executor
        .strand(None)
        .push_at(native(move || {
            let held = [(); 3].map(|()| {
                let gate = gate.clone();
                others
                    .strand(None)
                    .push_at(host(move || gate.pass()))
                    .unwrap()
            });
            let mut waits: Vec<_> = held.iter().map(|point| point.wait().unwrap()).collect();
            for waiting in &mut waits {
                assert!(!waiting.until(Some(Instant::now())));
            }
            wait_inside(&others.strand(None).push_at(native(|| ())).unwrap());
            gate.open();
            assert!(waits.iter_mut().all(|waiting| waiting.until(soon())));
        }))
        .unwrap();
    wait(&end);
    assert!(end.failure().is_none(), "{:?}", end.failure());
    assert!(executor.drain(soon()));
}

/// A wait that was begun on one thread may be gone on with on another.
#[test]
fn promise_14_a_wait_may_move_to_another_thread() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let point = executor.strand(None).push_at(native(|| ())).unwrap();
    let mut waiting = point.wait().unwrap();
    assert!(!waiting.until(Some(Instant::now())));
    threads(|threads| {
        let (asked, answer) = std::sync::mpsc::channel();
        threads.spawn(move || {
            asked.send(()).unwrap();
            assert!(waiting.until(soon()), "nobody woke the thread that waits");
        });
        answer.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
}

fn wait_inside(point: &clika_executor::Point) {
    assert!(point.wait().unwrap().until(soon()));
}
