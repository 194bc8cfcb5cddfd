//! Threads that cannot be made, and what an executor costs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::lane::Lane;
use crate::strand::{Runner, Strand, serve};
use crate::{Config, Executor, Host, Native, Refused};

fn config(workers: usize) -> Config {
    Config {
        workers,
        host_threads: 8,
        reporter: Box::new(|_| {}),
        recruiter: None,
    }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// How many threads may still be made before one cannot be; then, all can.
static BEFORE_ONE_FAILS: AtomicUsize = AtomicUsize::new(usize::MAX);

fn spawn(lane: Arc<Lane>, runner: Runner) -> io::Result<()> {
    if BEFORE_ONE_FAILS.fetch_sub(1, SeqCst) == 0 {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    crate::sync::spawn("test", move || serve(&lane, runner))
}

fn spawn_worker(lane: Arc<Lane>) -> io::Result<()> {
    spawn(lane, Runner::Worker)
}

fn spawn_host_thread(lane: Arc<Lane>) -> io::Result<()> {
    spawn(lane, Runner::HostThread)
}

/// The first, second, … thread cannot be made, until all can: work is refused, or done by fewer.
#[test]
fn promise_17_a_thread_that_cannot_be_made_hangs_nobody() {
    for fails_at in 0..12 {
        BEFORE_ONE_FAILS.store(fails_at, SeqCst);
        let (native, host) = (Some(spawn_worker as _), Some(spawn_host_thread as _));
        let executor = Arc::new(Executor::manned_by(config(2), native, host));
        if executor.shared().native.ensure_thread().is_err() {
            assert_eq!(fails_at, 0);
            continue;
        }
        let ran = Arc::new(AtomicUsize::new(0));
        let mut submitted = 0;
        for n in 0..20 {
            let ran = ran.clone();
            let work = move || {
                ran.fetch_add(1, SeqCst);
                Ok(())
            };
            let strand = executor.strand(None);
            match n % 2 {
                0 => submitted += usize::from(strand.push(Native::new(work, None)).is_ok()),
                _ => match strand.push(Host::new(work, None)) {
                    Ok(_) => submitted += 1,
                    Err(refused) => assert!(matches!(refused, Refused::NoThread(_))),
                },
            }
        }
        assert!(
            executor.drain(soon()),
            "hangs if thread {fails_at} cannot be made"
        );
        assert_eq!(ran.load(SeqCst), submitted);
    }
}

/// A thread that was asked for and takes its time, or never comes, is nothing to rely on: work
/// wakes the threads there are.
#[test]
fn promise_11_a_thread_that_is_long_in_coming_holds_up_nobody() {
    fn never_comes(_lane: Arc<Lane>) -> io::Result<()> {
        Ok(())
    }
    let executor = Executor::manned_by(config(8), Some(never_comes), None);
    let lane = executor.shared().native.clone();
    assert!(lane.recruit());
    crate::sync::spawn("the only one", move || serve(&lane, Runner::Worker)).unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let ends = [0, 1, 2].map(|_| {
            let begun = begun.clone();
            let work = move || {
                begun.fetch_add(1, SeqCst);
                Ok(())
            };
            executor
                .strand(None)
                .push_at(Native::new(work, None))
                .unwrap()
        });
        for end in ends {
            assert!(end.wait().unwrap().until(soon()), "nobody was woken");
        }
    }
    assert_eq!(begun.load(SeqCst), 300);
}

/// The budget is 0.4 KB for each of ten thousand strands, whatever they have been used for.
#[test]
fn promise_02_a_strand_is_small() {
    assert!(size_of::<Strand>() <= 256, "{} bytes", size_of::<Strand>());
}
