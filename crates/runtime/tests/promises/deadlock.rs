//! Waits inside work: those that could never end are refused, all others end.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clika_executor::sync::Mutex;
use clika_runtime::{Error, Stream};

use crate::default_stream;
use crate::gate::Gate;
use crate::process::alone;
use crate::stream;
use crate::watchdog::watch;

/// Runs `body` inside work of `stream`, on either lane, and returns its outcomes.
fn inside<T, F>(stream: &Stream, body: F) -> [T; 2]
where
    T: Send + 'static,
    F: Fn(Stream) -> T + Clone + Send + 'static,
{
    let (native, host) = (body.clone(), body);
    let (one, two) = (stream.clone(), stream.clone());
    let native = stream.call(move || native(one)).unwrap();
    let host = stream.call_host(move || host(two)).unwrap();
    [native.wait().unwrap(), host.wait().unwrap()]
}

#[track_caller]
fn refused(outcomes: impl IntoIterator<Item = Result<(), Error>>) {
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.is_deadlock(), "{error:?}");
        assert!(error.to_string().contains("wait for itself"), "{error}");
    }
}

#[test]
fn promise_09_work_cannot_wait_for_its_own_stream() {
    let _watchdog = watch();
    let stream = stream();
    refused(inside(&stream, |stream| stream.synchronize()));
    refused(inside(&stream, |stream| {
        stream.record_event().synchronize()
    }));
    refused(inside(&stream, |stream| stream.call(|| ()).unwrap().wait()));
    refused(inside(&stream, |stream| {
        stream.synchronize_timeout(Duration::MAX)
    }));
    refused(inside(&stream, |stream| {
        stream.call_host(|| ()).unwrap().wait_timeout(Duration::MAX)
    }));
    stream.synchronize().unwrap();
}

#[test]
fn promise_09_work_may_wait_for_what_came_before_it() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let (event, future) = (stream.record_event(), Arc::new(stream.call(|| 3).unwrap()));
    gate.open();
    let outcomes = inside(&stream, move |_| {
        event.synchronize().unwrap();
        future.wait_timeout(Duration::MAX)
    });
    let [first, second] = outcomes;
    assert_eq!(first.unwrap(), 3);
    assert!(
        second.unwrap_err().is_invalid_argument(),
        "it was taken before"
    );
}

#[test]
fn promise_09_work_cannot_wait_for_a_stream_that_waits_for_it() {
    let _watchdog = watch();
    let stream = stream();
    let outcomes = inside(&stream, |stream| {
        // Three steps away.
        let chain = [crate::stream(), crate::stream(), crate::stream()];
        chain[0].wait_stream(&stream).unwrap();
        chain[1].wait_event(&chain[0].record_event()).unwrap();
        chain[1].submit(|| ()).unwrap();
        chain[2].wait_stream(&chain[1]).unwrap();
        let waits = [
            chain[2].synchronize(),
            chain[0].synchronize(),
            chain[2].record_event().synchronize(),
            chain[2].call(|| ()).unwrap().wait(),
        ];
        refused(waits);
        chain
    });
    for chain in outcomes {
        chain
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
    }
}

#[test]
fn promise_09_of_works_that_wait_for_each_other_exactly_one_is_refused() {
    let _watchdog = watch();
    for count in [2, 3, 5] {
        for round in 0..20 {
            let streams: Vec<Stream> = (0..count).map(|_| stream()).collect();
            let meeting = Arc::new(std::sync::Barrier::new(count));
            let futures: Vec<_> = (0..count)
                .map(|n| {
                    let (meeting, next) = (meeting.clone(), streams[(n + 1) % count].clone());
                    let wait = move || {
                        meeting.wait();
                        next.record_event().synchronize()
                    };
                    streams[n].call_host(wait).unwrap()
                })
                .collect();
            let outcomes = futures.into_iter().map(|future| future.wait().unwrap());
            let errors: Vec<Error> = outcomes.filter_map(Result::err).collect();
            assert_eq!(
                errors.len(),
                1,
                "{count} streams, round {round}: {errors:?}"
            );
            assert!(errors[0].is_deadlock());
        }
    }
}

#[test]
fn promise_09_work_cannot_wait_for_the_default_stream_when_that_waits_for_it() {
    let default = &default_stream::alone().stream;
    let stream = stream();
    let inner = default.clone();
    let outcomes = inside(&stream, move |stream| {
        inner.wait_stream(&stream).unwrap();
        refused([
            inner.submit(|| ()),
            inner.submit_host(|| ()),
            inner.synchronize(),
        ]);
        refused([
            inner.call(|| ()).map(drop),
            inner.record_event().synchronize(),
        ]);
    });
    assert_eq!(outcomes.len(), 2);
    default.submit(|| ()).unwrap();
    default.synchronize().unwrap();
}

#[test]
fn promise_09_work_of_the_default_stream_cannot_wait_for_itself() {
    let default = &default_stream::alone().stream;
    let (inner, other) = (default.clone(), stream());
    let outcomes = default.call(move || {
        other.wait_event(&inner.record_event()).unwrap();
        let gate = Gate::on(&other);
        gate.open();
        [
            inner.synchronize(),
            inner.record_event().synchronize(),
            other.synchronize(),
            inner.wait_stream(&other),
            other.call(|| ()).unwrap().wait(),
        ]
    });
    refused(outcomes.unwrap().wait().unwrap());
    default.submit(|| ()).unwrap();
}

#[test]
fn promise_09_the_turn_on_the_default_stream_counts_as_a_wait() {
    let default = &default_stream::alone().stream;
    for _ in 0..20 {
        let (stream, inner) = (stream(), default.clone());
        let (begin, begun) = mpsc::channel();
        let outcomes = default.call(move || {
            let turn = stream.call_host(move || {
                begin.send(()).unwrap();
                inner.submit(|| ())
            });
            begun.recv().unwrap();
            // Either this wait is refused, or the work that wants a turn is.
            (stream.synchronize(), turn.unwrap())
        });
        let (wait, turn) = outcomes.unwrap().wait().unwrap();
        let outcomes = [wait, turn.wait().unwrap()];
        let errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].is_deadlock());
    }
}

#[test]
fn promise_09_waits_that_end_are_not_refused() {
    alone(
        &[("CLIKA_WORKERS", "1"), ("CLIKA_HOST_THREADS", "1")],
        || {
            let streams: Vec<Stream> = (0..20).map(|_| stream()).collect();
            // Each waits inside its work for the work of the next, which waits inside for the next.
            for pair in streams.windows(2) {
                let next = pair[1].clone();
                pair[0].submit(move || next.synchronize()).unwrap();
                let next = pair[1].clone();
                pair[0]
                    .submit_host(move || next.call(|| ()).unwrap().wait())
                    .unwrap();
            }
            streams
                .iter()
                .for_each(|stream| stream.synchronize().unwrap());
        },
    );
}

#[test]
fn promise_09_a_wait_for_the_default_stream_that_ends_is_not_refused() {
    let default = &default_stream::alone().stream;
    let (stream, inner) = (stream(), default.clone());
    let gate = Gate::on(&stream);
    default.wait_stream(&stream).unwrap();
    let other = crate::stream();
    let turn = other.call_host(move || inner.call(|| 4).unwrap().wait());
    gate.open();
    assert_eq!(turn.unwrap().wait().unwrap().unwrap(), 4);
}

#[test]
fn promise_09_a_thread_that_work_started_is_not_inside_it() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let waiter = Arc::new(Mutex::new(None));
    let (handle, own) = (waiter.clone(), stream.clone());
    let work = move || {
        let waiter = thread::spawn(move || own.synchronize());
        *handle.lock() = Some(waiter);
    };
    stream.submit(work).unwrap();
    gate.open();
    stream.synchronize().unwrap();
    let waiter = waiter.lock().take().unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
fn promise_09_a_refused_wait_leaves_the_stream_usable() {
    let _watchdog = watch();
    let stream = stream();
    let own = stream.clone();
    stream.submit(move || own.synchronize()).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(
        error.is_operation(),
        "the work returned the refusal: {error:?}"
    );
    assert!(error.to_string().contains("wait for itself"), "{error}");
    assert_eq!(stream.call(|| 5).unwrap().wait().unwrap(), 5);
}
