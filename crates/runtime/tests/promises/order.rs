//! Order within a stream, between threads, and between ready streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clika_runtime::Stream;

use crate::gate::Gate;
use crate::joined::joined;
use crate::log::Log;
use crate::process::alone;
use crate::stream;
use crate::watchdog::watch;

#[test]
fn promise_01_work_runs_in_the_order_in_which_it_was_submitted() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    for n in 0..10_000 {
        let log = log.clone();
        // Changing lanes must not change the order.
        if n % 97 == 0 {
            stream.submit_host(move || log.add(n)).unwrap();
        } else {
            stream.submit(move || log.add(n)).unwrap();
        }
    }
    stream.synchronize().unwrap();
    assert!(log.take().into_iter().eq(0..10_000));
}

#[test]
fn promise_01_work_starts_after_all_earlier_work_ended_and_sees_its_writes() {
    let _watchdog = watch();
    let stream = stream();
    let (value, running) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    for n in 0..5_000 {
        let (value, running) = (value.clone(), running.clone());
        let work = move || {
            assert!(!running.swap(true, Ordering::Relaxed), "two at once");
            assert_eq!(value.load(Ordering::Relaxed), n, "a write was not seen");
            value.store(n + 1, Ordering::Relaxed);
            running.store(false, Ordering::Relaxed);
        };
        if n % 3 == 0 {
            stream.submit_host(work)
        } else {
            stream.submit(work)
        }
        .unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(
        value.load(Ordering::Relaxed),
        5_000,
        "the host sees the writes too"
    );
}

#[test]
fn promise_01_threads_keep_their_own_order_and_nothing_is_lost_or_run_twice() {
    const THREADS: usize = 4;
    const EACH: usize = 5_000;
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    joined(|threads| {
        for thread in 0..THREADS {
            let (stream, log) = (&stream, &log);
            threads.spawn(move || (0..EACH).for_each(|n| log.note(stream, (thread, n))));
        }
    });
    stream.synchronize().unwrap();
    let entries = log.take();
    assert_eq!(entries.len(), THREADS * EACH);
    for thread in 0..THREADS {
        let own = entries
            .iter()
            .filter(|entry| entry.0 == thread)
            .map(|entry| entry.1);
        assert!(own.eq(0..EACH));
    }
}

#[test]
fn promise_01_the_order_between_threads_is_that_in_which_their_calls_took_effect() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    for n in 0..200 {
        let (stream, log) = (stream.clone(), log.clone());
        thread::spawn(move || log.note(&stream, n)).join().unwrap();
    }
    stream.synchronize().unwrap();
    assert!(log.take().into_iter().eq(0..200));
}

#[test]
fn promise_01_work_may_submit_more_work() {
    fn again(stream: &Stream, log: &Log<u32>, left: u32) {
        log.add(left);
        if left > 0 {
            let (stream, log) = (stream.clone(), log.clone());
            stream
                .clone()
                .submit(move || again(&stream, &log, left - 1))
                .unwrap();
        }
    }
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    again(&stream, &log, 1000);
    while !stream.query_idle() {
        stream.synchronize().unwrap();
    }
    assert!(log.take().into_iter().eq((0..=1000).rev()));
}

#[test]
fn promise_02_streams_do_not_wait_for_each_other() {
    let _watchdog = watch();
    let (blocked, free) = (stream(), stream());
    let gate = Gate::on(&blocked);
    for _ in 0..100 {
        assert_eq!(free.call(|| 1).unwrap().wait().unwrap(), 1);
    }
    assert!(!blocked.query_idle());
    gate.open();
    blocked.synchronize().unwrap();
}

#[test]
fn promise_02_independent_streams_overlap() {
    alone(&[("CLIKA_WORKERS", "2")], || {
        let meeting = Arc::new(std::sync::Barrier::new(2));
        let streams = [stream(), stream()];
        for _ in 0..100 {
            for stream in &streams {
                let meeting = meeting.clone();
                stream
                    .submit(move || {
                        meeting.wait();
                    })
                    .unwrap();
            }
        }
        streams
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
    });
}

#[test]
fn promise_02_submitting_never_waits_for_the_work() {
    let _watchdog = watch();
    let (stream, other) = (stream(), stream());
    let gate = Gate::begun_on(&stream);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..100_000 {
        let ran = ran.clone();
        stream
            .submit(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
    let event = stream.record_event();
    other.wait_event(&event).unwrap();
    other.wait_stream(&stream).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert_eq!(stream.pending(), 100_001);
    gate.open();
    other.synchronize().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 100_000);
}

/// Streams that never run dry: every operation submits the next before it ends.
#[derive(Clone, Default)]
struct Busy {
    ran: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Busy {
    /// More than any batch, so that the stream stays in the queue.
    const AHEAD: usize = 200;

    fn start(&self, count: usize) -> Vec<Stream> {
        let streams: Vec<Stream> = (0..count).map(|_| stream()).collect();
        for stream in &streams {
            (0..Self::AHEAD).for_each(|_| self.keep_busy(stream));
        }
        streams
    }

    fn keep_busy(&self, stream: &Stream) {
        let (again, busy) = (stream.clone(), self.clone());
        let work = move || {
            // Longer than a poll takes.
            (0..300_000_u64).for_each(|n| _ = std::hint::black_box(n));
            busy.ran.fetch_add(1, Ordering::Relaxed);
            if !busy.stop.load(Ordering::Relaxed) {
                busy.keep_busy(&again);
            }
        };
        stream.submit(work).unwrap();
    }

    /// How many of the busy operations ran before the next operation of an idle stream did, which
    /// `wait` waits for.
    fn ahead_of(&self, wait: impl FnOnce(&Stream)) -> u64 {
        let (stream, ran) = (stream(), self.ran.clone());
        let future = stream.call(move || ran.load(Ordering::Relaxed)).unwrap();
        let before = self.ran.load(Ordering::Relaxed);
        wait(&stream);
        future.wait().unwrap().saturating_sub(before)
    }
}

/// Checks that a ready stream waits for about one batch of each of four busy streams.
fn gets_its_turn(wait: fn(&Stream)) {
    let busy = Busy::default();
    let streams = busy.start(4);
    let most = (0..20).map(|_| busy.ahead_of(wait)).max();
    busy.stop.store(true, Ordering::Relaxed);
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
    println!("at most {most:?} operations ran first");
    assert!(most < Some(500), "{most:?} operations ran first");
}

#[test]
fn promise_01_a_ready_stream_gets_its_turn_among_busy_ones() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        gets_its_turn(|stream| stream.synchronize().unwrap());
    });
}

#[test]
fn promise_01_polling_a_stream_does_not_cost_it_its_turn() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        gets_its_turn(|stream| while stream.synchronize_timeout(Duration::ZERO).is_err() {});
    });
}
