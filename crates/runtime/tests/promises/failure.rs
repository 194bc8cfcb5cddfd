//! Failures, the epochs that carry them, and who acknowledges them.

use std::error::Error as _;
use std::fmt;
use std::num::ParseIntError;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clika_runtime::{Error, Future, Stream};

use crate::gate::Gate;
use crate::log::Log;
use crate::panic::throw;
use crate::stream;
use crate::threads;
use crate::waiting::{begin, block_on};
use crate::watchdog::watch;

/// Submits work that fails with `text`.
#[track_caller]
fn fail(stream: &Stream, text: &'static str) {
    stream.submit(move || Err(text)).unwrap();
}

/// Checks that a wait returned the failure with `text`.
#[track_caller]
fn failed<T: fmt::Debug>(outcome: Result<T, Error>, text: &str) -> Error {
    let error = outcome.unwrap_err();
    assert!(error.is_operation(), "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
    error
}

/// Checks that a future's work was skipped because of the failure with `text`.
#[track_caller]
fn skipped<T: fmt::Debug>(outcome: Result<T, Error>, text: &str) {
    let error = outcome.unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    let cause = error.source().unwrap().downcast_ref::<Error>().unwrap();
    assert!(
        cause.is_operation() && cause.to_string().contains(text),
        "{cause}"
    );
}

#[test]
fn promise_07_the_error_names_the_operation_its_stream_and_the_line_that_submitted_it() {
    let _watchdog = watch();
    let stream = Stream::named(clika_runtime::Device::cpu(), "parser").unwrap();
    stream.submit(|| ()).unwrap();
    let line = line!() + 1;
    stream.submit(|| "twelve".parse::<u32>().map(drop)).unwrap();
    let error = failed(stream.synchronize(), "invalid digit found in string");
    let text = error.to_string();
    assert!(text.contains("operation 2 of stream 'parser'"), "{text}");
    assert!(text.contains(&format!("failure.rs:{line}")), "{text}");
    assert!(
        error.source().unwrap().is::<ParseIntError>(),
        "the original error is its source"
    );
}

#[test]
fn promise_07_each_way_of_submitting_tells_its_line() {
    let _watchdog = watch();
    let stream = stream();
    let line = line!() + 1;
    stream.submit_host(|| Err("submit_host")).unwrap();
    let error = failed(stream.synchronize(), "submit_host");
    assert!(
        error.to_string().contains(&format!("failure.rs:{line}")),
        "{error}"
    );
    let line = line!() + 1;
    let future = stream.call(|| throw("call")).unwrap();
    let error = failed(future.wait(), "call");
    assert!(
        error.to_string().contains(&format!("failure.rs:{line}")),
        "{error}"
    );
    let line = line!() + 1;
    let future = stream.call_host(|| throw("call_host")).unwrap();
    let error = failed(future.wait(), "call_host");
    assert!(
        error.to_string().contains(&format!("failure.rs:{line}")),
        "{error}"
    );
}

#[test]
fn promise_07_the_first_failure_wins_and_what_follows_is_skipped() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    log.note(&stream, "before");
    fail(&stream, "first");
    fail(&stream, "second");
    let future = stream.call(|| ()).unwrap();
    log.note(&stream, "after");
    gate.open();
    failed(stream.synchronize(), "first");
    assert_eq!(log.take(), ["before"]);
    skipped(future.wait(), "first");
    stream.synchronize().unwrap();
}

#[test]
fn promise_07_a_failure_stays_until_it_is_acknowledged() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    fail(&stream, "kept");
    for _ in 0..100 {
        assert!(
            stream
                .record_event()
                .synchronize()
                .unwrap_err()
                .is_operation()
        );
        log.note(&stream, "skipped");
    }
    failed(stream.synchronize(), "kept");
    assert!(log.take().is_empty());
}

#[test]
fn promise_07_synchronize_acknowledges_at_the_position_of_its_return() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    fail(&stream, "broken");
    log.note(&stream, "before the acknowledgement");
    failed(stream.synchronize(), "broken");
    log.note(&stream, "after it");
    stream.synchronize().unwrap();
    assert_eq!(log.take(), ["after it"]);
}

#[test]
fn promise_07_an_await_of_the_stream_acknowledges() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    fail(&stream, "broken");
    let wait = begin(&stream);
    log.note(&stream, "skipped");
    gate.open();
    failed(block_on(wait), "broken");
    log.note(&stream, "runs");
    block_on(&stream).unwrap();
    assert_eq!(log.take(), ["runs"]);
}

#[test]
fn promise_07_each_way_to_take_the_failed_operations_own_result_acknowledges() {
    type Take = fn(Future<()>) -> Result<(), Error>;
    let ways: [Take; 3] = [
        Future::wait,
        |future| future.wait_timeout(Duration::MAX),
        |future| block_on(future),
    ];
    let _watchdog = watch();
    for take in ways {
        let (stream, log) = (stream(), Log::new());
        let own = stream.call(|| throw("own")).unwrap();
        let later = stream.call(|| ()).unwrap();
        skipped(take(later), "own");
        log.note(&stream, "skipped: a later future acknowledges nothing");
        failed(take(own), "own");
        log.note(&stream, "runs");
        stream.synchronize().unwrap();
        assert_eq!(log.take(), ["runs"]);
    }
}

#[test]
fn promise_07_an_event_acknowledges_nothing() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    fail(&stream, "broken");
    let event = stream.record_event();
    failed(event.synchronize(), "broken");
    failed(event.synchronize_timeout(Duration::MAX), "broken");
    failed(block_on(&event), "broken");
    assert!(event.query());
    log.note(&stream, "skipped");
    failed(stream.synchronize(), "broken");
    assert!(log.take().is_empty());
    failed(event.synchronize(), "broken");
}

#[test]
fn promise_07_another_streams_wait_acknowledges_nothing_here() {
    let _watchdog = watch();
    let (stream, other, log) = (stream(), crate::stream(), Log::new());
    fail(&stream, "broken");
    other.wait_stream(&stream).unwrap();
    failed(other.synchronize(), "broken");
    log.note(&stream, "skipped");
    failed(stream.synchronize(), "broken");
    assert!(log.take().is_empty());
    log.note(&other, "runs");
    other.synchronize().unwrap();
    assert_eq!(log.take(), ["runs"]);
}

#[test]
fn promise_07_neither_a_timeout_nor_a_cancelled_future_acknowledges() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let first = Gate::on(&stream);
    fail(&stream, "broken");
    let cancelled = stream.call(|| ()).unwrap();
    assert!(cancelled.cancel());
    assert!(
        stream
            .synchronize_timeout(Duration::ZERO)
            .unwrap_err()
            .is_timeout()
    );
    let error = cancelled.wait().unwrap_err();
    assert!(
        error.is_cancelled() && error.source().is_none(),
        "{error:?}"
    );
    first.open();
    stream.record_event().synchronize().unwrap_err();
    log.note(&stream, "skipped");
    failed(stream.synchronize_timeout(Duration::MAX), "broken");
    assert!(log.take().is_empty());
}

#[test]
fn promise_07_polling_acknowledges_nothing() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let future = stream.call(|| throw("broken")).unwrap();
    crate::waiting::until(|| stream.query_idle() && future.is_done());
    assert!(!future.is_cancelled() && !future.cancel());
    assert_eq!(stream.pending(), 0);
    let _ = format!("{stream:?} {future:?}");
    log.note(&stream, "skipped");
    failed(future.wait(), "broken");
    stream.synchronize().unwrap();
    assert!(log.take().is_empty());
}

#[test]
fn promise_07_every_wait_under_way_that_covers_the_failed_point_returns_it() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let before = begin(&stream.record_event());
    let uncovered = begin(&stream);
    fail(&stream, "broken");
    let awaits = [begin(&stream), begin(&stream)];
    let event = begin(stream.record_event());
    let behind = Gate::on(&stream);
    let later = begin(&stream);
    thread::scope(|scope| {
        let threads = [(); 3].map(|()| {
            let ((tell, told), stream) = (mpsc::channel(), &stream);
            let thread = scope.spawn(move || {
                tell.send(threads::current()).unwrap();
                stream.synchronize()
            });
            told.recv().unwrap().until_asleep();
            thread
        });
        gate.open();
        behind.open();
        // The first of these acknowledges; the others were under way.
        awaits
            .into_iter()
            .for_each(|wait| drop(failed(block_on(wait), "broken")));
        threads
            .into_iter()
            .for_each(|thread| drop(failed(thread.join().unwrap(), "broken")));
    });
    failed(block_on(event), "broken");
    failed(block_on(later), "broken");
    block_on(before).unwrap();
    block_on(uncovered).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn promise_07_only_waits_that_cover_the_failed_point_return_it() {
    let _watchdog = watch();
    let stream = stream();
    stream.submit(|| ()).unwrap();
    let (before, first) = (stream.record_event(), stream.call(|| 1).unwrap());
    fail(&stream, "broken");
    let after = stream.record_event();
    failed(stream.synchronize(), "broken");
    before.synchronize().unwrap();
    assert_eq!(first.wait().unwrap(), 1);
    failed(after.synchronize(), "broken");
    let renewed = stream.record_event();
    renewed.synchronize().unwrap();
    failed(after.synchronize(), "broken");
}

#[test]
fn promise_07_acknowledging_twice_acknowledges_once() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let own = stream.call(|| throw("first")).unwrap();
    let wait = {
        let gate = Gate::on(&stream);
        let wait = begin(&stream);
        gate.open();
        wait
    };
    failed(stream.synchronize(), "first");
    fail(&stream, "second");
    log.note(&stream, "skipped");
    // Both are about the first failure and must leave the second one alone.
    failed(own.wait(), "first");
    failed(block_on(wait), "first");
    log.note(&stream, "skipped too");
    failed(stream.synchronize(), "second");
    assert!(log.take().is_empty());
    stream.synchronize().unwrap();
}

#[test]
fn promise_07_a_thousand_failures_each_acknowledged() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    for _ in 0..1000 {
        log.note(&stream, ());
        fail(&stream, "again");
        log.note(&stream, ());
        failed(stream.synchronize(), "again");
    }
    assert_eq!(log.take().len(), 1000);
    assert!(stream.query_idle());
}

#[test]
fn promise_07_streams_that_wait_for_a_failed_point_fail_with_the_same_origin() {
    let _watchdog = watch();
    let (chain, log) = ((0..5).map(|_| stream()).collect::<Vec<_>>(), Log::new());
    let gate = Gate::on(&chain[0]);
    fail(&chain[0], "origin");
    for pair in chain.windows(2) {
        pair[1].wait_stream(&pair[0]).unwrap();
        log.note(&pair[1], "skipped");
    }
    gate.open();
    let errors: Vec<String> = chain
        .iter()
        .rev()
        .map(|one| failed(one.synchronize(), "origin").to_string())
        .collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(errors[0].contains(&chain[0].name()));
    assert!(log.take().is_empty());
    chain.iter().for_each(|stream| log.note(stream, "runs"));
    chain
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(log.take().len(), 5);
}

#[test]
fn promise_07_waiting_for_a_point_that_failed_long_ago_fails_too() {
    let _watchdog = watch();
    let (stream, late, log) = (stream(), crate::stream(), Log::new());
    log.note(&stream, "ran");
    let good = stream.record_event();
    fail(&stream, "old");
    let bad = stream.record_event();
    failed(stream.synchronize(), "old");
    late.wait_event(&good).unwrap();
    late.wait_stream(&stream).unwrap();
    log.note(&late, "ran");
    late.synchronize().unwrap();
    late.wait_event(&bad).unwrap();
    log.note(&late, "skipped");
    failed(late.synchronize(), "old");
    assert_eq!(log.take(), ["ran", "ran"]);
}

#[test]
fn promise_07_unrelated_streams_go_on() {
    let _watchdog = watch();
    let (failing, other, log) = (stream(), stream(), Log::new());
    log.note(&other, 1);
    fail(&failing, "broken");
    failed(failing.record_event().synchronize(), "broken");
    log.note(&other, 2);
    // The failing stream waits for the other one, not the other way round.
    failing.wait_stream(&other).unwrap();
    other.synchronize().unwrap();
    assert_eq!(log.take(), [1, 2]);
    failed(failing.synchronize(), "broken");
}

#[test]
fn promise_05_a_failed_stream_keeps_its_waits() {
    let _watchdog = watch();
    let (stream, other, log) = (stream(), crate::stream(), Log::new());
    let gate = Gate::on(&other);
    log.note(&other, "other");
    let own = stream.call(|| throw("broken")).unwrap();
    stream.wait_stream(&other).unwrap();
    log.note(&stream, "skipped");
    // What is submitted after the acknowledgement is behind the wait all the same.
    failed(own.wait(), "broken");
    log.note(&stream, "stream");
    let wait = begin(&stream);
    gate.open();
    block_on(wait).unwrap();
    assert_eq!(log.take(), ["other", "stream"]);
}

#[test]
fn promise_07_of_two_failures_that_meet_the_first_in_stream_order_wins() {
    let _watchdog = watch();
    let (one, two, both) = (stream(), stream(), stream());
    let gate = Gate::on(&one);
    fail(&one, "one");
    fail(&two, "two");
    both.wait_stream(&one).unwrap();
    both.wait_stream(&two).unwrap();
    failed(two.synchronize(), "two");
    gate.open();
    failed(both.synchronize(), "one");
    failed(one.synchronize(), "one");
}

#[test]
fn promise_07_the_futures_of_skipped_work_tell_the_failure_that_reached_them() {
    let _watchdog = watch();
    let (stream, other) = (stream(), crate::stream());
    fail(&stream, "origin");
    other.wait_stream(&stream).unwrap();
    let futures: Vec<Future<u32>> = (0..10).map(|n| other.call(move || n).unwrap()).collect();
    for future in futures {
        skipped(future.wait(), "origin");
    }
    failed(other.synchronize(), "origin");
    failed(stream.synchronize(), "origin");
}

#[test]
fn promise_07_submissions_of_other_threads_fall_before_or_after_the_acknowledgement() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    for round in 0..200 {
        fail(&stream, "broken");
        thread::scope(|scope| {
            let (stream, log) = (&stream, &log);
            let submitter = scope.spawn(move || (0..50).for_each(|n| log.note(stream, (round, n))));
            failed(stream.synchronize(), "broken");
            submitter.join().unwrap();
        });
        stream.synchronize().unwrap();
        // What runs is the end of the row: from the acknowledgement on, nothing is skipped.
        let ran = log.take();
        let start = 50 - ran.len() as i32;
        assert!(ran.into_iter().eq((start..50).map(|n| (round, n))));
    }
}

#[test]
fn promise_07_errors_of_every_usual_kind_are_taken_and_kept() {
    let _watchdog = watch();
    let stream = stream();
    stream.submit(|| Err(String::from("a string"))).unwrap();
    failed(stream.synchronize(), "a string");
    stream
        .submit(|| Err(Box::<dyn std::error::Error + Send + Sync>::from("boxed")))
        .unwrap();
    failed(stream.synchronize(), "boxed");
    stream
        .submit(|| Err(std::io::Error::other("disk")))
        .unwrap();
    let error = failed(stream.synchronize(), "disk");
    assert!(error.source().unwrap().is::<std::io::Error>());
    stream.submit(|| Ok::<(), fmt::Error>(())).unwrap();
    stream.synchronize().unwrap();
    // An error of ours passes through too.
    let inner = Arc::new(crate::stream());
    stream
        .submit(move || inner.native_handle().map(drop))
        .unwrap();
    let error = failed(stream.synchronize(), "no native streams");
    assert!(
        error
            .source()
            .unwrap()
            .downcast_ref::<Error>()
            .unwrap()
            .is_unsupported()
    );
}
