//! The default stream: work on the calling thread, turns between threads, work inside work.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clika_executor::sync::{Mutex, MutexGuard};
use clika_runtime::{Device, Error, Future, Stream};

use crate::gate::Gate;
use crate::joined::joined;
use crate::log::Log;
use crate::panic::throw;
use crate::stream;
use crate::threads;
use crate::watchdog::{Watchdog, watch};

/// The default stream, for one test at a time: there is but one.
pub(crate) struct Alone {
    pub(crate) stream: Stream,
    _turn: MutexGuard<'static, ()>,
    _watchdog: Watchdog,
}

/// Takes the default stream for the calling test.
pub(crate) fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock();
    let stream = Stream::default_stream(Device::cpu()).unwrap();
    Alone {
        stream,
        _turn: turn,
        _watchdog: watch(),
    }
}

impl Drop for Alone {
    /// What a failed test leaves on the stream is not the next test's.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

#[test]
fn promise_03_work_has_run_on_the_calling_thread_when_the_call_returns() {
    let default = &alone().stream;
    let (log, here) = (Log::new(), thread::current().id());
    let note = || {
        let log = log.clone();
        move || log.add(thread::current().id())
    };
    default.submit(note()).unwrap();
    assert_eq!(log.take(), [here]);
    default.submit_host(note()).unwrap();
    assert_eq!(log.take(), [here]);
    let (call, host) = (
        default.call(|| 1).unwrap(),
        default.call_host(|| 2).unwrap(),
    );
    assert!(call.is_done() && host.is_done());
    assert!(!call.cancel(), "it has run");
    assert_eq!((call.wait().unwrap(), host.wait().unwrap()), (1, 2));
    assert!(default.query_idle());
    let event = default.record_event();
    assert!(event.query());
    default.synchronize().unwrap();
}

#[test]
fn promise_03_the_call_waits_for_what_the_stream_waits_for() {
    let default = &alone().stream;
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    log.note(&stream, "stream");
    default.wait_stream(&stream).unwrap();
    let caller = threads::current();
    let opener = thread::spawn(move || {
        caller.until_asleep();
        gate.open();
    });
    log.note(default, "default");
    assert_eq!(log.take(), ["stream", "default"]);
    opener.join().unwrap();
}

#[test]
fn promise_03_other_streams_wait_for_the_default_stream() {
    let default = &alone().stream;
    let (stream, log) = (stream(), Log::new());
    log.note(default, 1);
    stream.wait_stream(default).unwrap();
    log.note(&stream, 2);
    default.wait_stream(&stream).unwrap();
    log.note(default, 3);
    assert_eq!(log.take(), [1, 2, 3]);
}

#[test]
fn promise_03_threads_take_turns() {
    let default = &alone().stream;
    let log = Log::new();
    thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let held = log.clone();
        let first = scope.spawn(move || {
            let work = move || {
                begin.send(()).unwrap();
                let _ = opened.recv();
                held.add("first");
            };
            default.submit(work).unwrap();
        });
        begun.recv().unwrap();
        assert!(!default.query_idle());
        let (tell, told) = mpsc::channel();
        let log = &log;
        let second = scope.spawn(move || {
            tell.send(threads::current()).unwrap();
            log.note(default, "second");
            // It ran here, so it has run.
            log.add("second returned");
        });
        told.recv().unwrap().until_asleep();
        assert!(log.take().is_empty());
        drop(open);
        first.join().unwrap();
        second.join().unwrap();
    });
    assert_eq!(log.take(), ["first", "second", "second returned"]);
}

#[test]
fn promise_03_turns_exclude_each_other_and_none_is_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 2_000;
    let default = &alone().stream;
    let count = Arc::new(AtomicU64::new(0));
    joined(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                for _ in 0..EACH {
                    let count = count.clone();
                    // Two relaxed steps: any overlap or unseen write would lose counts.
                    let add =
                        move || count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    default.submit(add).unwrap();
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), THREADS * EACH);
}

#[test]
fn promise_03_work_of_other_streams_may_use_the_default_stream() {
    let default = &alone().stream;
    let stream = stream();
    let inner = default.clone();
    let ran_there = stream.call(move || {
        let here = thread::current().id();
        inner
            .call(move || thread::current().id() == here)
            .unwrap()
            .wait()
            .unwrap()
    });
    assert!(ran_there.unwrap().wait().unwrap());
}

#[test]
fn promise_03_work_inside_its_own_work_runs_at_once() {
    let default = &alone().stream;
    let (log, inner) = (Log::new(), default.clone());
    let entries = log.clone();
    default
        .submit(move || {
            entries.add("begin");
            entries.note(&inner, "inner");
            let (deeper, deep) = (inner.clone(), entries.clone());
            inner
                .submit_host(move || deep.note(&deeper, "deep"))
                .unwrap();
            entries.add("end");
        })
        .unwrap();
    assert_eq!(log.take(), ["begin", "inner", "deep", "end"]);
}

#[test]
fn promise_03_a_future_made_inside_is_done_on_return() {
    let default = &alone().stream;
    let inner = default.clone();
    let sum = default.call(move || {
        let (one, two) = (inner.call(|| 1).unwrap(), inner.call_host(|| 2).unwrap());
        assert!(one.is_done() && two.is_done());
        assert!(!one.cancel() && !one.is_cancelled());
        let two = crate::waiting::block_on(two).unwrap();
        one.wait_timeout(Duration::ZERO).unwrap() + two
    });
    assert_eq!(sum.unwrap().wait().unwrap(), 3);
}

#[test]
fn promise_03_an_event_recorded_inside_completes_with_the_enclosing_work() {
    let default = &alone().stream;
    let (inner, stream, log) = (default.clone(), stream(), Log::new());
    let entries = log.clone();
    let events = default.call(move || {
        entries.note(&inner, "inner");
        let events = [inner.record_event(), inner.record_timed_event().unwrap()];
        assert!(!events[0].query() && !events[1].query());
        assert!(events[0].synchronize_timeout(Duration::ZERO).is_err());
        stream.wait_event(&events[0]).unwrap();
        entries.note(&stream, "stream");
        let gate = Gate::begun_on(&crate::stream());
        gate.open();
        entries.add("end");
        (events, stream)
    });
    let (events, stream) = events.unwrap().wait().unwrap();
    assert!(events.iter().all(clika_runtime::Event::query));
    assert!(events[1].elapsed_time(&events[1]).unwrap().is_zero());
    stream.synchronize().unwrap();
    assert_eq!(log.take(), ["inner", "end", "stream"]);
}

#[test]
fn promise_03_a_wait_inside_waits_in_the_call() {
    let default = &alone().stream;
    let (inner, stream, log) = (default.clone(), stream(), Log::new());
    let entries = log.clone();
    let work = move || {
        entries.note(&stream, "stream");
        inner.wait_stream(&stream).unwrap();
        entries.add("after wait_stream");
        entries.note(&stream, "stream");
        inner.wait_event(&stream.record_event()).unwrap();
        entries.add("after wait_event");
        // Its own earlier work is done or is what encloses this.
        inner.wait_stream(&inner).unwrap();
        inner.wait_event(&inner.record_event()).unwrap();
    };
    default.submit(work).unwrap();
    assert_eq!(
        log.take(),
        ["stream", "after wait_stream", "stream", "after wait_event"]
    );
}

#[test]
fn promise_03_a_wait_inside_returns_the_failure_it_meets() {
    let default = &alone().stream;
    let (inner, stream) = (default.clone(), stream());
    stream.submit(|| Err("broken")).unwrap();
    let (other, event) = (stream.clone(), stream.record_event());
    let outcome = default.call(move || [inner.wait_stream(&other), inner.wait_event(&event)]);
    for outcome in outcome.unwrap().wait().unwrap() {
        assert!(outcome.unwrap_err().is_operation());
    }
    assert!(
        stream.synchronize().unwrap_err().is_operation(),
        "an event acknowledges nothing"
    );
}

#[test]
fn promise_03_a_failure_returned_by_the_call_is_acknowledged_by_that() {
    let default = &alone().stream;
    let log = Log::new();
    for _ in 0..3 {
        let line = line!() + 1;
        let error = default.submit(|| Err("returned")).unwrap_err();
        assert!(error.is_operation(), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("default_stream.rs:{line}")),
            "{text}"
        );
        assert!(
            text.contains("stream 'default'") && text.contains("returned"),
            "{text}"
        );
        let error = default.submit_host(|| throw("panicked")).unwrap_err();
        assert!(
            error.is_operation() && error.to_string().contains("panicked"),
            "{error}"
        );
        log.note(default, "runs");
    }
    default.synchronize().unwrap();
    assert_eq!(log.take(), ["runs"; 3]);
}

#[test]
fn promise_03_a_failure_kept_in_a_future_stays_until_acknowledged() {
    let default = &alone().stream;
    let log = Log::new();
    let future = default.call(|| throw("kept")).unwrap();
    let error = log.try_note(default, "skipped").unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    assert!(error.source().unwrap().to_string().contains("kept"));
    let skipped = default.call(|| 1).unwrap();
    assert!(skipped.is_done());
    assert!(skipped.wait().unwrap_err().is_cancelled());
    log.try_note(default, "skipped still").unwrap_err();
    assert!(future.wait().unwrap_err().is_operation());
    log.note(default, "runs");
    default.call(|| throw("kept again")).map(drop).unwrap();
    assert!(
        default
            .synchronize()
            .unwrap_err()
            .to_string()
            .contains("kept again")
    );
    log.note(default, "runs");
    assert_eq!(log.take(), ["runs"; 2]);
}

#[test]
fn promise_07_the_default_stream_fails_with_what_it_waits_for() {
    let default = &alone().stream;
    let (stream, log) = (stream(), Log::new());
    stream.submit(|| Err("origin")).unwrap();
    default.wait_stream(&stream).unwrap();
    let error = log.try_note(default, "skipped").unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    assert!(error.source().unwrap().to_string().contains("origin"));
    assert!(
        default
            .synchronize()
            .unwrap_err()
            .to_string()
            .contains("origin")
    );
    log.note(default, "runs");
    assert_eq!(log.take(), ["runs"]);
    assert!(stream.synchronize().unwrap_err().is_operation());
}

/// Runs `body` inside work on the default stream and returns what the call returned.
fn inside(default: &Stream, body: impl FnOnce(&Stream) + Send + 'static) -> Result<(), Error> {
    let inner = default.clone();
    default.submit(move || body(&inner))
}

#[test]
fn promise_03_a_failure_handled_inside_is_not_the_enclosing_works() {
    let default = &alone().stream;
    let log = Log::new();
    let entries = log.clone();
    inside(default, move |inner| {
        assert!(inner.submit(|| Err("returned")).unwrap_err().is_operation());
        entries.note(inner, "goes on");
        assert!(
            inner
                .call(|| throw("kept"))
                .unwrap()
                .wait()
                .unwrap_err()
                .is_operation()
        );
        entries.note(inner, "goes on");
    })
    .unwrap();
    log.note(default, "goes on");
    default.synchronize().unwrap();
    assert_eq!(log.take(), ["goes on"; 3]);
}

#[test]
fn promise_03_a_failure_kept_inside_skips_what_follows_inside() {
    let default = &alone().stream;
    let log = Log::new();
    let entries = log.clone();
    inside(default, move |inner| {
        let first = inner.call(|| throw("first")).unwrap();
        let second = inner.call(|| 2).unwrap();
        assert!(
            entries
                .try_note(inner, "skipped")
                .unwrap_err()
                .is_cancelled()
        );
        let error = second.wait().unwrap_err();
        assert!(error.is_cancelled(), "{error:?}");
        entries
            .try_note(inner, "skipped: it acknowledged nothing")
            .unwrap_err();
        assert!(first.wait().unwrap_err().is_operation());
        entries.note(inner, "runs");
    })
    .unwrap();
    assert_eq!(log.take(), ["runs"]);
}

#[test]
fn promise_03_a_failure_left_inside_is_not_lost() {
    let default = &alone().stream;
    let event = default.clone();
    let outcome = inside(default, |inner| drop(inner.call(|| throw("left"))));
    let event = event.record_event().synchronize();
    let kept = default.synchronize();
    let told = [outcome, event, kept]
        .into_iter()
        .filter_map(Result::err)
        .map(|e| e.to_string());
    assert!(told.collect::<String>().contains("left"));
    default.submit(|| ()).unwrap();
}

#[test]
fn promise_03_the_enclosing_work_fails_by_itself_after_it_handled_another_failure() {
    let default = &alone().stream;
    let inner = default.clone();
    let error = default
        .submit(move || {
            inner.submit(|| Err("handled")).unwrap_err();
            Err("its own")
        })
        .unwrap_err();
    assert!(error.to_string().contains("its own"), "{error}");
    let inner = default.clone();
    let future: Future<()> = default
        .call(move || {
            inner.submit(|| Err("handled")).unwrap_err();
            panic!("its own");
        })
        .unwrap();
    let error = future.wait().unwrap_err();
    assert!(error.to_string().contains("its own"), "{error}");
    default.submit(|| ()).unwrap();
}

#[test]
fn promise_07_an_event_recorded_inside_carries_the_enclosing_works_failure() {
    let default = &alone().stream;
    let (inner, stream) = (default.clone(), stream());
    let other = stream.clone();
    let outcome = default.submit(move || {
        other.wait_event(&inner.record_event()).unwrap();
        Err("enclosing")
    });
    assert!(outcome.unwrap_err().is_operation());
    assert!(
        stream
            .synchronize()
            .unwrap_err()
            .to_string()
            .contains("enclosing")
    );
    default.submit(|| ()).unwrap();
}
