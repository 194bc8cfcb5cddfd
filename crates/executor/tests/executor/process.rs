//! Promises 9 and 13: what concerns the process. A forked child is refused what it inherited, at
//! once, and makes its own; the program's signals are its own; waiting costs nothing.
//!
//! Most tests here run in a process of their own: the test itself, started again for this one.
#![allow(unsafe_code, reason = "calls into the C library")]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clika_executor::{Executor, ForeignThread, Kind, Next, Operation, Point, Refused, generation};

use super::child::fork;
#[cfg(target_os = "linux")]
use super::rest::at_rest;
use super::support::{
    FOREVER, Gate, enter, executor, hold_workers, host, native, soon, synchronize, threads, wait,
    workers,
};

const MARKER: &str = "CLIKA_TEST_FORKS";

/// Runs `body` in a fresh process that runs nothing else.
fn in_a_process_of_its_own(test: &str, body: impl FnOnce()) {
    if std::env::var_os(MARKER).is_some() {
        return body();
    }
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("process::{test}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(MARKER, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + FOREVER;
    loop {
        match process.try_wait().unwrap() {
            Some(status) => return assert!(status.success(), "{status}"),
            None if Instant::now() < end => std::thread::yield_now(),
            None => {
                process.kill().unwrap();
                panic!("hangs");
            }
        }
    }
}

/// The child makes its own executor and works with it.
fn work_in_the_child() {
    let executor = executor();
    for _ in 0..10 {
        let strand = executor.strand(None);
        for _ in 0..100 {
            strand.push(native(|| ())).unwrap();
        }
        strand.push(host(|| ())).unwrap();
        synchronize(&strand);
    }
    assert!(executor.drain(soon()));
}

#[test]
fn promise_13_a_child_is_refused_and_makes_its_own() {
    in_a_process_of_its_own("promise_13_a_child_is_refused_and_makes_its_own", || {
        let executor = executor();
        let (strand, inline) = (executor.strand(None), executor.inline_strand("default"));
        let gate = hold_workers(&executor, workers());
        let mut pending = Some(strand.push_at(native(|| ())).unwrap());
        let mut handles = Some((executor, strand, inline));
        let before = generation();
        fork(|| {
            let (executor, strand, inline) = handles.as_ref().unwrap();
            assert_eq!(generation(), before + 1);
            assert!(executor.is_inherited() && strand.is_inherited());
            assert!(matches!(
                strand.push(native(|| ())),
                Err(Refused::Inherited)
            ));
            assert!(matches!(strand.push(host(|| ())), Err(Refused::Inherited)));
            assert!(matches!(
                strand.wait_for(&inline.point()),
                Err(Refused::Inherited)
            ));
            assert!(matches!(inline.visit(), Err(Refused::Inherited)));
            assert!(matches!(
                executor.push_loose(native(|| ())),
                Err(Refused::Inherited)
            ));
            assert!(!pending.as_ref().unwrap().is_reached() && !strand.point().is_reached());
            work_in_the_child();
            strand.orphan();
            drop((pending.take(), handles.take()));
        });
        gate.open();
        let (executor, ..) = handles.as_ref().unwrap();
        assert!(executor.drain(soon()));
        assert_eq!(generation(), before);
    });
}

/// A strand of the child's own cannot wait for what will never come.
#[test]
fn promise_13_a_childs_strand_does_not_wait_for_the_parent() {
    in_a_process_of_its_own(
        "promise_13_a_childs_strand_does_not_wait_for_the_parent",
        || {
            let executor = executor();
            let strand = executor.strand(None);
            let done = strand.push_at(native(|| ())).unwrap();
            wait(&done);
            let gate = hold_workers(&executor, workers());
            let pending = strand.push_at(native(|| ())).unwrap();
            fork(|| {
                let own = self::executor();
                let strand = own.strand(None);
                assert!(matches!(strand.wait_for(&pending), Err(Refused::Inherited)));
                let behind = |point: &Point| [point.position().clone()];
                assert!(matches!(
                    strand.push_after(behind(&pending), native(|| ())),
                    Err(Refused::Inherited)
                ));
                strand.wait_for(&done).unwrap();
                strand
                    .push_after(behind(&done), native(|| ()))
                    .map(drop)
                    .unwrap();
                synchronize(&strand);
            });
            gate.open();
        },
    );
}

#[test]
fn promise_13_forks_while_other_threads_push() {
    in_a_process_of_its_own("promise_13_forks_while_other_threads_push", || {
        let executor = executor();
        let strands: Vec<_> = (0..4).map(|_| executor.strand(None)).collect();
        let stop = AtomicBool::new(false);
        threads(|threads| {
            for thread in 0..4 {
                let (strands, stop) = (&strands, &stop);
                threads.spawn(move || {
                    let mut n: usize = thread;
                    while !stop.load(SeqCst) {
                        let strand = &strands[n % 4];
                        let end = strand.push_at(native(|| ())).unwrap();
                        strands[(n + 1) % 4].wait_for(&end).unwrap();
                        if n.is_multiple_of(64) {
                            wait(&end);
                        }
                        n += 1;
                    }
                });
            }
            for _ in 0..20 {
                fork(|| {
                    for strand in &strands {
                        assert!(matches!(
                            strand.push(native(|| ())),
                            Err(Refused::Inherited)
                        ));
                        let _ = (strand.pending(), strand.point(), strand.failure());
                        strand.point().acknowledge();
                    }
                    work_in_the_child();
                });
            }
            stop.store(true, SeqCst);
        });
        assert!(executor.drain(soon()));
    });
}

/// The child comes back from the visit that the fork happened in, and touches nothing.
#[test]
fn promise_13_a_fork_inside_a_visit_leaves_the_turn_to_the_parent() {
    in_a_process_of_its_own(
        "promise_13_a_fork_inside_a_visit_leaves_the_turn_to_the_parent",
        || {
            let executor = executor();
            let (inline, other) = (executor.inline_strand("default"), executor.strand(None));
            let inside = enter(&inline);
            let point = inline.point();
            other.wait_for(&point).unwrap();
            other.push(native(|| ())).unwrap();
            let mut inside = Some(inside);
            fork(|| {
                inside.take().unwrap().finish(Ok(()));
                assert!(
                    !point.is_reached(),
                    "the child ended the parent's operation"
                );
                assert!(inline.inside().is_none());
                work_in_the_child();
            });
            inside.take().unwrap().finish(Ok(()));
            synchronize(&other);
        },
    );
}

struct Function(Box<dyn FnOnce() + Send>);

impl Operation for Function {
    const KIND: Kind = Kind::Foreign;

    fn run(self) -> Result<(), clika_executor::Fault> {
        unreachable!("foreign operations are taken")
    }
}

/// The child of a fork inside a foreign function goes on as that thread, and gets no more work.
#[test]
fn promise_13_a_fork_inside_a_foreign_function_takes_no_work_along() {
    in_a_process_of_its_own(
        "promise_13_a_fork_inside_a_foreign_function_takes_no_work_along",
        || {
            let executor = Arc::new(executor());
            let strand = executor.strand(None);
            strand.push(Function(Box::new(|| ()))).unwrap();
            let second = strand.push_at(Function(Box::new(|| ()))).unwrap();
            assert!(executor.recruit());
            let mut thread = Some(ForeignThread::arrive(&executor));
            let Some(Next::Run(function)) = thread.as_mut().unwrap().next::<Function>() else {
                panic!("no work")
            };
            (function.0)();
            fork(|| {
                let mut thread = thread.take().unwrap();
                thread.finish(Ok(()));
                assert_eq!(
                    strand.pending(),
                    0,
                    "an inherited strand has nothing pending"
                );
                assert!(thread.next::<Function>().is_none() && !thread.rest());
                drop(thread);
                work_in_the_child();
            });
            let thread = thread.as_mut().unwrap();
            thread.finish(Ok(()));
            let Some(Next::Run(function)) = thread.next::<Function>() else {
                panic!("no more work")
            };
            (function.0)();
            thread.finish(Ok(()));
            wait(&second);
        },
    );
}

/// A fork inside an operation: in the child, the thread is still inside, but of nothing it knows.
#[test]
fn promise_13_a_fork_inside_an_operation_leads_to_no_false_deadlock() {
    in_a_process_of_its_own(
        "promise_13_a_fork_inside_an_operation_leads_to_no_false_deadlock",
        || {
            let executor = executor();
            let inline = executor.inline_strand("default");
            let inside = enter(&inline);
            fork(|| {
                let own = self::executor();
                let (inline, strand) = (own.inline_strand("default"), own.strand(None));
                assert!(inline.inside().is_none());
                let gate = Gate::default();
                let end = {
                    let gate = gate.clone();
                    strand.push_at(host(move || gate.pass())).unwrap()
                };
                gate.open();
                assert!(end.wait().expect("no deadlock").until(soon()));
                enter(&inline).finish(Ok(()));
            });
            inside.finish(Ok(()));
        },
    );
}

/// The parent notices nothing, however often it forks.
#[test]
fn promise_13_the_parent_notices_nothing() {
    in_a_process_of_its_own("promise_13_the_parent_notices_nothing", || {
        let executor: Executor = executor();
        let strand = executor.strand(None);
        for _ in 0..20 {
            let end = strand.push_at(native(|| ())).unwrap();
            fork(|| ());
            wait(&end);
        }
    });
}

/// Workers and host threads leave signals to the threads of the program, but for those that a
/// fault of their own raises.
#[test]
fn promise_09_workers_take_no_signal_from_the_program() {
    fn is_blocked(signal: i32) -> bool {
        // SAFETY: the set is a plain value, which the first call fills.
        unsafe {
            let mut mask = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, signal) == 1
        }
    }
    let executor = executor();
    let seen = super::support::Log::new();
    let look = || {
        let seen = seen.clone();
        move || {
            let blocked = [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1];
            let faults = [
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGFPE,
                libc::SIGILL,
                libc::SIGTRAP,
            ];
            seen.add((blocked.map(is_blocked), faults.map(is_blocked)));
        }
    };
    wait(&executor.strand(None).push_at(native(look())).unwrap());
    wait(&executor.strand(None).push_at(host(look())).unwrap());
    assert_eq!(seen.take(), [([true; 4], [false; 5]); 2]);
    assert!(!is_blocked(libc::SIGINT), "the submitter's own mask");
}

#[cfg(target_os = "linux")]
#[test]
fn promise_09_waiting_and_idling_cost_no_processor_time() {
    in_a_process_of_its_own(
        "promise_09_waiting_and_idling_cost_no_processor_time",
        || {
            let executor = executor();
            let strand = executor.strand(None);
            wait(&strand.push_at(native(|| ())).unwrap());
            let (open, opened) = mpsc::channel::<()>();
            let (begin, begun) = mpsc::channel();
            let hold = host(move || {
                begin.send(()).unwrap();
                let _ = opened.recv();
            });
            let held = strand.push_at(hold).unwrap();
            begun.recv().unwrap();
            at_rest(|| {
                let second = Some(Instant::now() + Duration::from_secs(1));
                assert!(!held.wait().unwrap().until(second));
            });
            drop(open);
            assert!(executor.drain(soon()));
        },
    );
}
