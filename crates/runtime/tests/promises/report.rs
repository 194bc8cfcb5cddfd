//! Failures that nobody acknowledged are reported, once, where the last handle goes.

use std::fmt;
use std::sync::mpsc;

use clika_runtime::{Device, Stream};

use crate::gate::Gate;
use crate::panic::throw;
use crate::process::{AS_IT_IS, Left, alone};
use crate::waiting::{begin, block_on, until};

/// A stream whose only work has failed.
fn failed_stream(text: &'static str) -> Stream {
    let stream = Stream::named(Device::cpu(), "failing").unwrap();
    stream.submit(move || Err(text)).unwrap();
    until(|| stream.query_idle());
    stream
}

/// Returns once everything that the dropped streams had left to do is done.
fn drain() {
    assert!(clika_runtime::shutdown(std::time::Duration::MAX));
}

fn reported_once(left: Option<Left>) {
    let Some(left) = left else { return };
    assert_eq!(left.reports(), 1, "{}", left.stderr);
    let line = left
        .stderr
        .lines()
        .find(|line| line.contains("nobody acknowledged"))
        .unwrap();
    assert!(line.contains("operation 1 of stream 'failing'"), "{line}");
    assert!(
        line.contains("report.rs:") && line.contains("the text"),
        "{line}"
    );
}

fn not_reported(left: Option<Left>) {
    let Some(left) = left else { return };
    assert_eq!(left.reports(), 0, "{}", left.stderr);
}

#[test]
fn promise_07_a_failure_is_reported_when_the_last_handle_goes() {
    reported_once(alone(AS_IT_IS, || {
        let stream = failed_stream("the text");
        let clone = stream.clone();
        drop(stream);
        eprintln!("still held");
        drop(clone);
    }));
}

#[test]
fn promise_07_a_failure_that_comes_after_the_last_handle_went_is_reported() {
    reported_once(alone(AS_IT_IS, || {
        let stream = Stream::named(Device::cpu(), "failing").unwrap();
        let (open, opened) = mpsc::channel::<()>();
        let work = move || {
            let _ = opened.recv();
            Err("the text")
        };
        stream.submit_host(work).unwrap();
        drop(stream);
        drop(open);
        drain();
    }));
}

#[test]
fn promise_07_futures_and_events_are_handles_too() {
    reported_once(alone(AS_IT_IS, || {
        let stream = failed_stream("the text");
        let (event, future) = (stream.record_event(), stream.call(|| ()).unwrap());
        drop(stream);
        assert!(event.synchronize().unwrap_err().is_operation());
        drop(event);
        assert!(future.wait().unwrap_err().is_cancelled());
    }));
}

#[test]
fn promise_07_a_failure_of_many_streams_is_reported_once() {
    reported_once(alone(AS_IT_IS, || {
        let stream = failed_stream("the text");
        let others: Vec<Stream> = (0..10).map(|_| crate::stream()).collect();
        others
            .iter()
            .for_each(|other| other.wait_stream(&stream).unwrap());
        drop(stream);
        drop(others);
        drain();
    }));
}

#[test]
fn promise_07_a_failure_is_reported_at_the_end_while_handles_live() {
    reported_once(alone(AS_IT_IS, || {
        let stream = failed_stream("the text");
        drain();
        drop(stream);
    }));
}

#[test]
fn promise_07_a_failure_left_on_the_default_stream_is_reported_at_the_end() {
    let left = alone(AS_IT_IS, || {
        let default = Stream::default_stream(Device::cpu()).unwrap();
        drop(default.call(|| throw("left there")).unwrap());
        drain();
    });
    let Some(left) = left else { return };
    assert_eq!(left.reports(), 1, "{}", left.stderr);
    assert!(
        left.stderr.contains("of stream 'default'"),
        "{}",
        left.stderr
    );
}

#[test]
fn promise_07_an_acknowledged_failure_is_not_reported() {
    not_reported(alone(AS_IT_IS, || {
        failed_stream("by synchronize").synchronize().unwrap_err();
        block_on(&failed_stream("by an await")).unwrap_err();
        let stream = crate::stream();
        let future = stream.call(|| throw("by its own future")).unwrap();
        future.wait().unwrap_err();
        let default = Stream::default_stream(Device::cpu()).unwrap();
        default.submit(|| Err("by the call itself")).unwrap_err();
        drop(stream);
        drain();
    }));
}

#[test]
fn promise_07_an_await_that_consumes_the_last_handle_is_the_acknowledgement() {
    not_reported(alone(AS_IT_IS, || {
        block_on(failed_stream("at once")).unwrap_err();
        let stream = crate::stream();
        let gate = Gate::on(&stream);
        stream.submit(|| Err("later")).unwrap();
        let wait = begin(stream);
        gate.open();
        block_on(wait).unwrap_err();
        drain();
    }));
}

#[test]
fn promise_07_an_await_that_is_given_up_acknowledges_nothing() {
    reported_once(alone(AS_IT_IS, || {
        let stream = failed_stream("the text");
        let other = crate::stream();
        let gate = Gate::on(&other);
        stream.wait_stream(&other).unwrap();
        drop(gate);
        drop(std::future::IntoFuture::into_future(stream));
        drain();
    }));
}

#[test]
fn promise_10_a_cancelled_operation_is_no_failure() {
    not_reported(alone(AS_IT_IS, || {
        let stream = crate::stream();
        let gate = Gate::on(&stream);
        let future = stream.call(|| ()).unwrap();
        assert!(future.cancel());
        gate.open();
        drop((stream, future));
        drain();
    }));
}

/// An error that cannot be printed.
#[derive(Debug)]
struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("an error panics when it is printed");
    }
}

impl std::error::Error for Unprintable {}

#[test]
fn promise_08_an_error_that_panics_when_it_is_printed_harms_nobody() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        let (stream, other) = (crate::stream(), crate::stream());
        let gate = Gate::on(&stream);
        stream.submit(|| Err(Unprintable)).unwrap();
        drop(stream);
        gate.open();
        // The report is made by the worker, which must outlive it.
        for _ in 0..100 {
            other.submit(|| ()).unwrap();
        }
        other.synchronize().unwrap();
        drain();
    });
}

#[test]
fn promise_08_a_closed_standard_error_stream_harms_nobody() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        close_stderr();
        let (stream, other) = (crate::stream(), crate::stream());
        let gate = Gate::on(&stream);
        stream.submit(|| Err("unheard")).unwrap();
        drop(stream);
        gate.open();
        other.submit(|| ()).unwrap();
        other.synchronize().unwrap();
        drain();
    });
}

/// Makes the standard error stream a pipe that nobody reads: writing to it fails.
#[expect(unsafe_code, reason = "the standard library closes no standard stream")]
fn close_stderr() {
    let mut pipe = [0; 2];
    // SAFETY: the array takes the two descriptors; nothing of this process reads descriptor 2.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        assert_eq!(libc::dup2(pipe[1], 2), 2);
        libc::close(pipe[0]);
    }
}
