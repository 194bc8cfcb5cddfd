//! Promise 12, as far as the executor goes: drained up to a bound, then dropped, in every state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use clika_executor::{Executor, Mark, Point, Reason, Refused};

use super::support::{
    Drops, Gate, Watchdog, count, enter, eventually, executor, hold_workers, host, native, rounds,
    soon, threads, wait, with_workers, workers,
};

/// The point is reached, because its operation was dropped at the shutdown.
#[track_caller]
fn expect_dropped(point: &Point) {
    wait(point);
    let failure = point.failure().expect("dropped");
    assert!(matches!(failure.reason, Reason::ShutDown));
}

#[test]
fn promise_12_an_idle_executor_is_drained_at_once() {
    let executor = executor();
    let _strand = executor.strand(None);
    assert!(executor.drain(Some(Instant::now())));
}

#[test]
fn promise_12_draining_waits_for_what_running_work_submits() {
    let executor = Arc::new(executor());
    let ran = Arc::new(AtomicUsize::new(0));
    chain(&executor, &ran, 1000);
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(SeqCst), 1000);
}

/// Each operation submits the next, now here, now there.
fn chain(executor: &Arc<Executor>, ran: &Arc<AtomicUsize>, left: usize) {
    if left == 0 {
        return;
    }
    let (next, count) = (executor.clone(), ran.clone());
    let work = move || {
        count.fetch_add(1, SeqCst);
        chain(&next, &count, left - 1);
    };
    let strand = executor.strand(None);
    if left.is_multiple_of(10) {
        strand.push(host(work))
    } else {
        strand.push(native(work))
    }
    .unwrap();
}

#[test]
fn promise_12_draining_gives_up_at_its_deadline_and_may_be_tried_again() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let deadline = Instant::now() + Duration::from_millis(30);
    assert!(!executor.drain(Some(deadline)));
    assert!(Instant::now() >= deadline);
    gate.open();
    assert!(executor.drain(soon()));
}

#[test]
fn promise_12_several_threads_may_drain() {
    for _ in 0..rounds(100) {
        let executor = executor();
        let gate = hold_workers(&executor, workers());
        threads(|threads| {
            for _ in 0..3 {
                threads.spawn(|| assert!(executor.drain(soon())));
            }
            gate.open();
        });
    }
}

#[test]
fn promise_12_submitting_after_the_shutdown_is_refused() {
    let executor = executor();
    let (strand, other) = (executor.strand(None), executor.strand(None));
    let gate = hold_workers(&executor, workers());
    let pending = other.push_at(native(|| ())).unwrap();
    executor.close();
    assert!(matches!(strand.push(native(|| ())), Err(Refused::ShutDown)));
    assert!(matches!(strand.push(host(|| ())), Err(Refused::ShutDown)));
    assert!(matches!(strand.wait_for(&pending), Err(Refused::ShutDown)));
    assert!(matches!(
        executor.push_loose(native(|| ())),
        Err(Refused::ShutDown)
    ));
    assert!(matches!(
        executor.inline_strand("late").visit(),
        Err(Refused::ShutDown)
    ));
    assert!(matches!(
        executor.strand(None).push(native(|| ())),
        Err(Refused::ShutDown)
    ));
    assert!(strand.point().is_reached(), "nothing was submitted");
    gate.open();
}

#[test]
fn promise_12_a_ready_strand_is_dropped() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let point = executor.strand(None).push_at(native(|| ())).unwrap();
    executor.close();
    expect_dropped(&point);
    gate.open();
}

#[test]
fn promise_12_a_running_operation_ends_and_what_is_behind_it_is_dropped() {
    let executor = executor();
    for lane in [native_gate, host_gate] {
        let executor = self::executor();
        let strand = executor.strand(None);
        let gate = Gate::default();
        let running = lane(&strand, &gate);
        gate.await_waiting(1);
        let behind = strand.push_at(native(|| ())).unwrap();
        executor.close();
        assert!(!running.is_reached() && !behind.is_reached());
        gate.open();
        wait(&running);
        assert!(running.failure().is_none(), "it ran to its end");
        expect_dropped(&behind);
    }
    assert!(executor.drain(soon()));
}

fn native_gate(strand: &Arc<clika_executor::Strand>, gate: &Gate) -> Point {
    let gate = gate.clone();
    strand.push_at(native(move || gate.pass())).unwrap()
}

fn host_gate(strand: &Arc<clika_executor::Strand>, gate: &Gate) -> Point {
    let gate = gate.clone();
    strand.push_at(host(move || gate.pass())).unwrap()
}

/// It is parked on an operation that still runs when the executor closes.
#[test]
fn promise_12_a_parked_strand_is_dropped_when_its_wait_is_over() {
    let executor = executor();
    let (signal, parked) = (executor.strand(None), executor.strand(None));
    let gate = Gate::default();
    parked.wait_for(&host_gate(&signal, &gate)).unwrap();
    let point = parked.push_at(native(|| ())).unwrap();
    gate.await_waiting(1);
    executor.close();
    assert!(!point.is_reached());
    gate.open();
    expect_dropped(&point);
}

/// It is parked on a strand that is dropped itself.
#[test]
fn promise_12_a_strand_parked_on_a_dropped_one_is_dropped() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let (signal, parked) = (executor.strand(None), executor.strand(None));
    parked
        .wait_for(&signal.push_at(native(|| ())).unwrap())
        .unwrap();
    let point = parked.push_at(native(|| ())).unwrap();
    executor.close();
    wait(&point);
    assert!(matches!(point.failure().unwrap().reason, Reason::ShutDown));
    gate.open();
}

#[test]
fn promise_12_a_chain_of_ten_thousand_parked_strands_is_dropped() {
    for held in [true, false] {
        let executor = executor();
        let strands: Vec<_> = (0..10_000).map(|_| executor.strand(None)).collect();
        let gate = Gate::default();
        let workers_gate = if held {
            Some(hold_workers(&executor, workers()))
        } else {
            None
        };
        match held {
            true => drop(strands[0].push(native(|| ())).unwrap()),
            false => drop(host_gate(&strands[0], &gate)),
        }
        for pair in strands.windows(2) {
            pair[1].wait_for(&pair[0].point()).unwrap();
            pair[1].push(native(|| ())).unwrap();
        }
        let end = strands[9999].point();
        drop(strands);
        if !held {
            gate.await_waiting(1);
        }
        executor.close();
        gate.open();
        expect_dropped(&end);
        if let Some(gate) = workers_gate {
            gate.open();
        }
    }
}

/// The same chain, run to its end instead.
#[test]
fn promise_12_a_chain_of_ten_thousand_parked_strands_is_drained() {
    let executor = executor();
    let strands: Vec<_> = (0..10_000).map(|_| executor.strand(None)).collect();
    let gate = Gate::default();
    host_gate(&strands[0], &gate);
    let ran = Arc::new(AtomicUsize::new(0));
    for pair in strands.windows(2) {
        pair[1].wait_for(&pair[0].point()).unwrap();
        let ran = ran.clone();
        pair[1].push(native(move || count(&ran))).unwrap();
    }
    drop(strands);
    gate.open();
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(SeqCst), 9_999);
}

#[test]
fn promise_12_a_visitor_that_waits_is_dropped_and_one_inside_ends() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    let inside = enter(&strand);
    std::thread::scope(|scope| {
        let waiting = Gate::default();
        let visitor = scope.spawn({
            let (strand, waiting) = (&strand, waiting.clone());
            move || {
                let visitor = strand.visit().unwrap().unwrap();
                waiting.open();
                assert!(visitor.until(soon()));
                assert!(visitor.enter().is_err(), "its turn came after the shutdown");
            }
        });
        waiting.pass();
        executor.close();
        inside.finish(Ok(()));
        visitor.join().unwrap();
    });
    assert_eq!(strand.pending(), 0);
}

/// A visitor waits for its turn behind a strand that is dropped.
#[test]
fn promise_12_a_visitor_behind_a_dropped_strand_is_dropped() {
    let executor = executor();
    let (inline, other) = (executor.inline_strand("default"), executor.strand(None));
    let gate = hold_workers(&executor, workers());
    inline
        .wait_for(&other.push_at(native(|| ())).unwrap())
        .unwrap();
    let visitor = inline.visit().unwrap().unwrap();
    executor.close();
    assert!(visitor.until(soon()));
    assert!(visitor.enter().is_err());
    gate.open();
}

#[test]
fn promise_12_waiters_of_every_kind_wake_at_the_shutdown() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let point = executor.strand(None).push_at(native(|| ())).unwrap();
    let called = Arc::new(AtomicUsize::new(0));
    point.when_reached({
        let called = called.clone();
        move || count(&called)
    });
    threads(|threads| {
        for _ in 0..4 {
            threads.spawn(|| wait(&point));
        }
        executor.close();
    });
    eventually(|| called.load(SeqCst) == 1);
    gate.open();
}

/// Threads submit and wait while the executor closes under them.
#[test]
fn promise_12_nobody_hangs_when_the_shutdown_meets_submissions() {
    for round in 0..rounds(300) {
        let _watchdog = Watchdog::new(format!("shutdown against submissions, round {round}"));
        let executor = with_workers(1 + round % 3);
        let strands: Vec<_> = (0..3).map(|_| executor.strand(None)).collect();
        let (drops, pushed) = (Drops::default(), AtomicUsize::new(0));
        threads(|threads| {
            for thread in 0..2 {
                let (strands, drops, pushed) = (&strands, &drops, &pushed);
                threads.spawn(move || {
                    for n in 0.. {
                        let strand = &strands[(n + thread) % 3];
                        let probe = drops.probe();
                        let outcome = match n % 5 {
                            0 => strand.push_at(host(move || drop(probe))),
                            1 => strand.push_at(Mark::new(move || drop(probe))),
                            _ => strand.push_at(native(move || drop(probe))),
                        };
                        pushed.fetch_add(1, SeqCst);
                        let Ok(end) = outcome else { break };
                        if n % 7 == 0 {
                            wait(&end);
                        }
                        let _ = strand.wait_for(&strands[n % 3].point());
                    }
                });
            }
            for _ in 0..round {
                std::thread::yield_now();
            }
            executor.close();
        });
        assert!(executor.drain(soon()));
        assert_eq!(drops.count(), pushed.load(SeqCst));
        assert!(strands.iter().all(|strand| strand.pending() == 0));
    }
}

/// The last handle of the executor may go inside its own work.
#[test]
fn promise_12_an_executor_may_be_dropped_by_its_own_work() {
    let executor = Arc::new(executor());
    let (strand, done) = (executor.strand(None), Gate::default());
    let end = {
        let (gate, done) = (done.clone(), executor);
        strand
            .push_at(host(move || {
                drop(done);
                gate.open();
            }))
            .unwrap()
    };
    done.pass();
    wait(&end);
    assert!(end.failure().is_none());
}
