//! Promise 11: blocking work has a lane of its own, which grows while its threads block.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use clika_executor::{Config, Executor};

use super::support::{
    Gate, executor, hold_workers, host, native, soon, synchronize, wait, workers,
};

fn with_host_threads(host_threads: usize) -> Executor {
    let config = Config {
        workers: workers(),
        host_threads,
        reporter: Box::new(|_| {}),
        recruiter: None,
    };
    Executor::new(config).expect("a thread")
}

/// Sixty host functions, each on a strand of its own, that stay until the gate opens.
fn block_host_threads(executor: &Executor, threads: usize) -> Gate {
    let gate = Gate::default();
    for _ in 0..threads {
        let gate = gate.clone();
        executor
            .strand(None)
            .push(host(move || gate.pass()))
            .unwrap();
    }
    gate
}

#[test]
fn promise_11_blocked_host_functions_do_not_delay_the_next() {
    let executor = executor();
    let gate = block_host_threads(&executor, 60);
    wait(&executor.strand(None).push_at(host(|| ())).unwrap());
    assert!(executor.threads()[1] >= 61);
    gate.open();
    assert!(executor.drain(soon()));
}

#[test]
fn promise_11_blocked_host_functions_stop_no_native_work() {
    let executor = executor();
    let gate = block_host_threads(&executor, 60);
    for _ in 0..100 {
        wait(&executor.strand(None).push_at(native(|| ())).unwrap());
    }
    assert!(executor.threads()[0] <= workers());
    gate.open();
    assert!(executor.drain(soon()));
}

#[test]
fn promise_11_the_host_lane_keeps_to_its_limit() {
    let executor = with_host_threads(3);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..30 {
        let (now, most) = (now.clone(), most.clone());
        let work = move || {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, SeqCst);
        };
        executor.strand(None).push(host(work)).unwrap();
    }
    assert!(executor.drain(soon()));
    assert!(most.load(SeqCst) <= 3 && executor.threads()[1] <= 3);
}

/// At its limit, the lane still replaces the threads that tell it that they wait.
#[test]
fn promise_11_host_functions_that_wait_do_not_use_up_the_limit() {
    let executor = Arc::new(with_host_threads(2));
    let end = nest(&executor, 20);
    wait(&end);
}

fn nest(executor: &Arc<Executor>, levels: usize) -> clika_executor::Point {
    let inner = executor.clone();
    let work = host(move || {
        if levels > 0 {
            assert!(nest(&inner, levels - 1).wait().unwrap().until(soon()));
        }
    });
    executor.strand(None).push_at(work).unwrap()
}

/// Host and native work of one strand alternate, without the one holding the other's threads.
#[test]
fn promise_11_a_strand_may_go_between_the_lanes() {
    let executor = executor();
    let strand = executor.strand(None);
    let ran = Arc::new(AtomicUsize::new(0));
    for n in 0..1000 {
        let ran = ran.clone();
        let work = move || assert_eq!(ran.fetch_add(1, SeqCst), n);
        if n % 2 == 0 {
            strand.push(host(work))
        } else {
            strand.push(native(work))
        }
        .unwrap();
    }
    synchronize(&strand);
    assert_eq!(ran.load(SeqCst), 1000);
    assert!(strand.failure().is_none());
}

/// Host functions run on other threads than native work does, whoever submits them.
#[test]
fn promise_11_lanes_do_not_mix() {
    let executor = Arc::new(executor());
    let name = || std::thread::current().name().map(str::to_owned);
    let seen = super::support::Log::new();
    for _ in 0..50 {
        let (nested, log) = (executor.clone(), seen.clone());
        let work = move || {
            log.add(("native", name()));
            let log = log.clone();
            nested
                .strand(None)
                .push(host(move || log.add(("host", name()))))
                .unwrap();
        };
        executor.strand(None).push(native(work)).unwrap();
    }
    assert!(executor.drain(soon()));
    for (kind, name) in seen.take() {
        let expected = if kind == "native" {
            "clika-worker"
        } else {
            "clika-host"
        };
        assert_eq!(name.as_deref(), Some(expected));
    }
}

/// Work on all workers does not keep host functions from running.
#[test]
fn promise_11_busy_workers_stop_no_host_function() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    for _ in 0..100 {
        wait(&executor.strand(None).push_at(host(|| ())).unwrap());
    }
    gate.open();
}

/// Loose operations run beside strands, and count as pending work.
#[test]
fn promise_11_loose_operations_run_on_their_lane_and_are_drained() {
    let executor = executor();
    let gate = Gate::default();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let (gate, ran) = (gate.clone(), ran.clone());
        executor
            .push_loose(host(move || {
                gate.pass();
                ran.fetch_add(1, SeqCst);
            }))
            .unwrap();
    }
    assert!(!executor.drain(Some(std::time::Instant::now())));
    gate.open();
    assert!(executor.drain(soon()));
    assert_eq!(ran.load(SeqCst), 20);
}
