//! Dropping handles: the work runs, then the resources go.

use std::sync::{Arc, Weak, mpsc};

use clika_runtime::Stream;

use crate::gate::Gate;
use crate::log::Log;
use crate::process::{AS_IT_IS, alone};
use crate::stream;
use crate::threads;
use crate::waiting::until;
use crate::watchdog::watch;

#[test]
fn promise_10_dropping_the_last_handle_neither_blocks_nor_cancels() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::begun_on(&stream);
    (0..100).for_each(|n| log.note(&stream, n));
    let (done, all_done) = mpsc::channel();
    stream.submit(move || done.send(())).unwrap();
    drop(stream);
    assert!(log.take().is_empty());
    gate.open();
    all_done.recv().unwrap();
    assert!(log.take().into_iter().eq(0..100));
}

#[test]
fn promise_10_a_dropped_stream_still_waits_and_is_still_waited_for() {
    let _watchdog = watch();
    let (first, middle, last, log) = (stream(), stream(), stream(), Log::new());
    let gate = Gate::on(&first);
    middle.wait_stream(&first).unwrap();
    log.note(&middle, "middle");
    last.wait_stream(&middle).unwrap();
    log.note(&last, "last");
    drop((first, middle));
    gate.open();
    last.synchronize().unwrap();
    assert_eq!(log.take(), ["middle", "last"]);
}

#[test]
fn promise_10_what_dropped_streams_held_is_let_go() {
    let _watchdog = watch();
    let value = Arc::new(());
    let watched: Weak<()> = Arc::downgrade(&value);
    let (one, two) = (stream(), stream());
    let gate = Gate::on(&one);
    two.wait_stream(&one).unwrap();
    two.submit(move || drop(value)).unwrap();
    drop((one, two));
    gate.open();
    until(|| watched.upgrade().is_none());
}

#[test]
fn promise_10_work_may_hold_the_last_handle_of_its_own_stream() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    let (done, all_done) = mpsc::channel();
    let (own, entries) = (stream.clone(), log.clone());
    let work = move || {
        own.submit(move || done.send(())).unwrap();
        entries.add(own.pending());
    };
    stream.submit(work).unwrap();
    drop(stream);
    gate.open();
    all_done.recv().unwrap();
    assert_eq!(log.take(), [2]);
}

#[test]
fn promise_10_streams_may_hold_each_others_handles() {
    let _watchdog = watch();
    let (one, two) = (stream(), stream());
    let watched = {
        let value = Arc::new(());
        let watched = Arc::downgrade(&value);
        let gate = Gate::on(&one);
        let (first, second) = (two.clone(), one.clone());
        one.submit(move || drop(first)).unwrap();
        two.submit(move || drop((second, value))).unwrap();
        drop((one, two));
        gate.open();
        watched
    };
    until(|| watched.upgrade().is_none());
}

/// Uses a stream in every way and drops it, in varying order and at varying times.
fn use_and_drop(n: usize) {
    let (stream, other) = (stream(), stream());
    let future = stream.call(move || vec![n; 10]).unwrap();
    let event = stream.record_event();
    other.wait_event(&event).unwrap();
    let last = other.call_host(|| ()).unwrap();
    if n.is_multiple_of(2) {
        drop((event, stream));
    }
    if n.is_multiple_of(3) {
        other.submit(|| Err("nobody minds")).unwrap();
        let _ = other.synchronize();
    }
    drop(future);
    last.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn promise_10_making_and_dropping_streams_leaves_memory_threads_and_files_as_they_were() {
    alone(AS_IT_IS, || {
        let measure = || {
            (
                threads::names().len(),
                files(),
                crate::many_streams::resident(),
            )
        };
        (0..2_000).for_each(use_and_drop);
        let before = measure();
        (0..10_000).for_each(use_and_drop);
        let after = measure();
        // The host lane may have grown a little, but by no means with the streams.
        assert!(after.0 <= before.0 + 8, "threads: {before:?}, {after:?}");
        assert_eq!(after.1, before.1, "files");
        let grown = after.2.saturating_sub(before.2) as f64;
        crate::many_streams::at_most(2e6, grown, "what 20,000 streams left");
    });
}

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn promise_14_the_last_handle_may_go_on_any_thread() {
    let _watchdog = watch();
    let log = Log::new();
    for n in 0..200 {
        let stream: Stream = stream();
        log.note(&stream, n);
        let event = stream.record_event();
        let threads = [
            std::thread::spawn(move || drop(stream)),
            std::thread::spawn(move || {
                event.synchronize().unwrap();
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
    }
    assert!(log.take().into_iter().eq(0..200));
}
