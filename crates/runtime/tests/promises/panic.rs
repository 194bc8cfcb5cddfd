//! Panics in work, and in what work captures, returns and throws.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clika_runtime::{Future, Stream};

use crate::gate::Gate;
use crate::log::Log;
use crate::process::alone;
use crate::stream;
use crate::watchdog::watch;

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

/// What a panic may carry: it panics when it is dropped. What that panic carries takes no memory,
/// since nobody can be asked to drop it.
struct BadPayload;

impl Drop for BadPayload {
    fn drop(&mut self) {
        panic_any(());
    }
}

/// Panics when it is dropped, with a payload that panics when it is dropped.
struct DoubleBomb;

impl Drop for DoubleBomb {
    fn drop(&mut self) {
        panic_any(BadPayload);
    }
}

/// Panics, where a function that returns nothing is wanted.
pub(crate) fn throw(text: &str) {
    panic!("{text}");
}

/// As [`throw`], with any payload.
fn throw_any(payload: impl Send + 'static) {
    panic_any(payload);
}

/// Checks that the stream, and others, still work.
fn usable(stream: &Stream) {
    assert_eq!(stream.call(|| 7).unwrap().wait().unwrap(), 7);
    assert_eq!(stream.call_host(|| 7).unwrap().wait().unwrap(), 7);
    assert_eq!(crate::stream().call(|| 7).unwrap().wait().unwrap(), 7);
}

#[test]
fn promise_08_a_panic_is_the_failure_of_its_stream_and_tells_its_message() {
    let _watchdog = watch();
    let stream = stream();
    let number = 3;
    stream.submit(|| throw("a literal")).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(
        error.is_operation() && error.to_string().contains("a literal"),
        "{error}"
    );
    stream
        .submit_host(move || assert!(number > 3, "formatted {number}"))
        .unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("formatted 3"), "{error}");
    stream.submit(|| throw_any(17_u8)).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("panic"), "{error}");
    usable(&stream);
}

#[test]
fn promise_08_the_only_worker_survives_panics_of_every_kind() {
    alone(
        &[("CLIKA_WORKERS", "1"), ("CLIKA_HOST_THREADS", "1")],
        || {
            let stream = stream();
            for n in 0..50 {
                stream.submit(move || assert_ne!(n, n)).unwrap();
                stream.synchronize().unwrap_err();
                stream.submit_host(move || assert_ne!(n, n)).unwrap();
                stream.synchronize().unwrap_err();
            }
            usable(&stream);
        },
    );
}

#[test]
fn promise_08_a_payload_that_panics_when_dropped_harms_nobody() {
    let _watchdog = watch();
    let stream = stream();
    stream.submit(|| throw_any(BadPayload)).unwrap();
    assert!(stream.synchronize().unwrap_err().is_operation());
    let future = stream.call_host(|| throw_any(BadPayload)).unwrap();
    assert!(future.wait().unwrap_err().is_operation());
    let default = &crate::default_stream::alone().stream;
    assert!(
        default
            .submit(|| throw_any(BadPayload))
            .unwrap_err()
            .is_operation()
    );
    usable(&stream);
}

#[test]
fn promise_08_a_captured_value_that_panics_when_dropped_fails_its_operation() {
    let _watchdog = watch();
    let stream = stream();
    let bomb = Bomb("captured");
    stream.submit(move || drop(bomb)).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(
        error.is_operation() && error.to_string().contains("captured"),
        "{error}"
    );
    let bomb = Bomb("left behind");
    stream
        .submit(move || {
            let _kept = &bomb;
        })
        .unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("left behind"), "{error}");
    usable(&stream);
}

#[test]
fn promise_08_skipped_work_whose_captured_value_panics_harms_nobody() {
    alone(
        &[("CLIKA_WORKERS", "1"), ("CLIKA_HOST_THREADS", "1")],
        || {
            let stream = stream();
            stream.submit(|| Err("first")).unwrap();
            let (one, two, three) = (Bomb("skipped"), DoubleBomb, DoubleBomb);
            stream
                .submit(move || {
                    let _kept = &one;
                })
                .unwrap();
            stream
                .submit(move || {
                    let _kept = &two;
                })
                .unwrap();
            stream
                .submit_host(move || {
                    let _kept = &three;
                })
                .unwrap();
            let error = stream.synchronize().unwrap_err();
            assert!(error.to_string().contains("first"), "{error}");
            usable(&stream);
        },
    );
}

#[test]
fn promise_08_cancelled_work_whose_captured_value_panics_harms_nobody() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let bomb = DoubleBomb;
    let future = stream
        .call(move || {
            let _kept = &bomb;
        })
        .unwrap();
    assert!(future.cancel());
    gate.open();
    let _ = stream.synchronize();
    usable(&stream);
}

#[test]
fn promise_08_a_value_that_panics_when_dropped_harms_nobody() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let future = stream.call(|| DoubleBomb).unwrap();
    drop(future);
    gate.open();
    let _ = stream.synchronize();
    usable(&stream);
}

#[test]
fn promise_08_an_error_that_panics_when_dropped_harms_nobody() {
    #[derive(Debug)]
    struct Explosive;
    impl Drop for Explosive {
        fn drop(&mut self) {
            panic!("an error goes off");
        }
    }
    impl std::fmt::Display for Explosive {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("explosive")
        }
    }
    impl std::error::Error for Explosive {}

    let only = &[("CLIKA_WORKERS", "1"), ("CLIKA_HOST_THREADS", "1")];
    alone(only, || {
        for _ in 0..10 {
            let failing = stream();
            let gate = Gate::on(&failing);
            failing.submit(|| Err(Explosive)).unwrap();
            // Nobody asks for it, so a thread of the runtime drops it.
            drop(failing);
            gate.open();
            usable(&stream());
        }
        let stream = stream();
        stream.submit(|| Err(Explosive)).unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(error.to_string().contains("explosive"), "{error}");
        // Whoever drops the error last meets its panic: here that is the test.
        catch_unwind(AssertUnwindSafe(|| drop(error))).unwrap_err();
        usable(&stream);
        assert!(clika_runtime::shutdown(std::time::Duration::MAX));
    });
}

#[test]
fn promise_08_a_panic_does_not_hang_those_who_wait_for_its_value() {
    let _watchdog = watch();
    let stream = stream();
    let future: Future<u32> = stream.call(|| panic!("no value")).unwrap();
    let error = future.wait().unwrap_err();
    assert!(error.to_string().contains("no value"), "{error}");
    usable(&stream);
}

#[test]
fn promise_10_captured_values_are_dropped_once_before_the_operation_counts_as_complete() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _watchdog = watch();
    let (stream, drops, log) = (stream(), Arc::new(AtomicUsize::new(0)), Log::new());
    let submit = |outcome: Result<(), &'static str>| {
        let (counted, log) = (Counted(drops.clone()), log.clone());
        let work = move || {
            log.add(counted.0.load(Ordering::Relaxed));
            outcome
        };
        stream.submit(work).unwrap();
    };
    // Each sees what the one before it captured dropped: 0, then 1.
    submit(Ok(()));
    submit(Err("broken"));
    submit(Ok(()));
    stream.synchronize().unwrap_err();
    assert_eq!(log.take(), [0, 1]);
    assert_eq!(
        drops.load(Ordering::Relaxed),
        3,
        "skipped work lets go as well"
    );
}
