//! Forks: a child is refused what it inherited, at once, and has a runtime of its own.
#![cfg(unix)]

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clika_runtime::{Device, Stream, shutdown};

use crate::child::{in_child, refused};
use crate::gate::Gate;
use crate::joined::joined;
use crate::process::{AS_IT_IS, alone};
use crate::stream;
use crate::waiting::{begin, block_on, until};

/// The outcome of an await that must not have to wait.
fn at_once<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits for what never comes"),
    }
}

/// Everything that a child can create and use by itself.
fn usable_runtime() {
    let (one, two) = (stream(), stream());
    let default = Stream::default_stream(Device::cpu()).unwrap();
    two.wait_stream(&one).unwrap();
    default.wait_event(&one.record_event()).unwrap();
    assert_eq!(one.call(|| 1).unwrap().wait().unwrap(), 1);
    assert_eq!(two.call_host(|| 2).unwrap().wait().unwrap(), 2);
    assert_eq!(default.call(|| 3).unwrap().wait().unwrap(), 3);
    one.submit(|| Err("an own failure")).unwrap();
    assert!(one.synchronize().unwrap_err().is_operation());
    two.synchronize().unwrap();
    default.synchronize().unwrap();
}

#[test]
fn promise_13_a_child_is_refused_inherited_streams_at_once() {
    alone(AS_IT_IS, || {
        let stream = stream();
        let gate = Gate::begun_on(&stream);
        stream.submit(|| ()).unwrap();
        in_child(|| {
            refused(stream.submit(|| ()));
            refused(stream.submit_host(|| ()));
            refused(stream.call(|| ()));
            refused(stream.call_host(|| ()));
            refused(stream.record_timed_event());
            refused(stream.synchronize());
            refused(stream.synchronize_timeout(Duration::MAX));
            refused(stream.wait_stream(&stream));
            refused(at_once(&stream));
            refused(at_once(stream.clone()));
            refused(stream.record_event().synchronize());
        });
        gate.open();
        stream.synchronize().unwrap();
    });
}

#[test]
fn promise_13_a_child_is_refused_inherited_events_and_futures_at_once() {
    alone(AS_IT_IS, || {
        let stream = stream();
        let reached = stream.record_event();
        let gate = Gate::begun_on(&stream);
        let (event, future) = (stream.record_event(), stream.call(|| ()).unwrap());
        let awaited = stream.call(|| ()).unwrap();
        let mut awaited = Some(awaited);
        in_child(|| {
            refused(event.synchronize());
            refused(event.synchronize_timeout(Duration::MAX));
            refused(at_once(&event));
            refused(future.wait_timeout(Duration::MAX));
            refused(at_once(awaited.take().unwrap()));
            refused(reached.synchronize());
            refused(at_once(&reached));
            let own = crate::stream();
            refused(own.wait_event(&event));
            refused(own.wait_stream(&stream));
            refused(
                Stream::default_stream(Device::cpu())
                    .unwrap()
                    .wait_event(&event),
            );
            assert_eq!(own.call(|| 4).unwrap().wait().unwrap(), 4);
        });
        gate.open();
        event.synchronize().unwrap();
        future.wait().unwrap();
    });
}

#[test]
fn promise_13_a_child_is_refused_awaits_that_were_begun_before() {
    alone(AS_IT_IS, || {
        let stream = stream();
        let gate = Gate::begun_on(&stream);
        let future = stream.call(|| 5).unwrap();
        let waits = (begin(&stream), begin(stream.record_event()), begin(future));
        let mut waits = Some(waits);
        in_child(|| {
            let (stream, event, future) = waits.take().unwrap();
            refused(at_once(stream));
            refused(at_once(event));
            refused(at_once(future));
        });
        let mut untouched = waits.take();
        in_child(|| drop(untouched.take()));
        gate.open();
        let (stream, event, future) = untouched.unwrap();
        block_on(stream).unwrap();
        block_on(event).unwrap();
        assert_eq!(block_on(future).unwrap(), 5);
    });
}

#[test]
fn promise_13_a_child_may_look_at_and_drop_what_it_inherited() {
    alone(AS_IT_IS, || {
        let (stream, failing) = (stream(), crate::stream());
        failing.submit(|| Err("the parent's")).unwrap();
        until(|| failing.query_idle());
        let gate = Gate::begun_on(&stream);
        let handles = (
            stream.clone(),
            stream.record_event(),
            stream.call(|| ()).unwrap(),
        );
        let mut inherited = Some((handles, stream, failing));
        in_child(|| {
            let (handles, stream, failing) = inherited.take().unwrap();
            let _ = format!("{stream:?} {handles:?}");
            assert_eq!(handles.0, stream);
            assert_ne!(crate::stream(), stream);
            let _ = (
                stream.pending(),
                stream.query_idle(),
                handles.1.query(),
                handles.2.is_done(),
            );
            drop((handles, stream, failing));
        });
        let (handles, stream, failing) = inherited.unwrap();
        gate.open();
        handles.2.wait().unwrap();
        stream.synchronize().unwrap();
        assert!(failing.synchronize().unwrap_err().is_operation());
    });
}

#[test]
fn promise_13_the_inherited_default_stream_is_refused_and_there_is_another() {
    alone(AS_IT_IS, || {
        let default = Stream::default_stream(Device::cpu()).unwrap();
        default.submit(|| ()).unwrap();
        in_child(|| {
            refused(default.submit(|| ()));
            refused(default.call(|| ()));
            refused(default.synchronize());
            let own = Stream::default_stream(Device::cpu()).unwrap();
            assert_ne!(own, default);
            own.submit(|| ()).unwrap();
        });
        default.submit(|| ()).unwrap();
    });
}

#[test]
fn promise_13_a_child_and_its_child_have_runtimes_of_their_own() {
    alone(AS_IT_IS, || {
        usable_runtime();
        in_child(|| {
            usable_runtime();
            let middle = stream();
            in_child(|| {
                refused(middle.submit(|| ()));
                usable_runtime();
            });
            middle.submit(|| ()).unwrap();
            middle.synchronize().unwrap();
            assert!(shutdown(Duration::MAX));
        });
        usable_runtime();
    });
}

#[test]
fn promise_13_a_fork_before_the_first_use_leaves_both_usable() {
    alone(AS_IT_IS, || {
        let _ = clika_runtime::devices();
        in_child(usable_runtime);
        usable_runtime();
        in_child(usable_runtime);
    });
}

#[test]
fn promise_13_a_fork_after_a_shutdown_leaves_the_child_usable() {
    alone(AS_IT_IS, || {
        usable_runtime();
        assert!(shutdown(Duration::MAX));
        in_child(usable_runtime);
    });
}

#[test]
fn promise_13_work_may_fork() {
    alone(AS_IT_IS, || {
        let (stream, default) = (stream(), Stream::default_stream(Device::cpu()).unwrap());
        let (own, other) = (stream.clone(), default.clone());
        let fork = move || {
            in_child(|| {
                // The child runs inside the parent's work, which must not be taken for its own.
                refused(own.submit(|| ()));
                refused(other.submit(|| ()));
                refused(other.call(|| ()));
                refused(other.wait_stream(&own));
                usable_runtime();
            });
        };
        default.submit(fork.clone()).unwrap();
        stream.submit_host(fork.clone()).unwrap();
        stream.submit(fork).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn promise_13_forks_while_threads_submit_harm_nobody() {
    alone(AS_IT_IS, || {
        let (streams, stop) = ([stream(), stream()], AtomicBool::new(false));
        let (ran, submitted) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        joined(|threads| {
            for n in 0..4 {
                let (streams, stop, ran, submitted) = (&streams, &stop, &ran, &submitted);
                threads.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let ran = ran.clone();
                        let work = move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        };
                        streams[n % 2].submit(work).unwrap();
                        streams[n / 2].wait_stream(&streams[n % 2]).unwrap();
                        if submitted.fetch_add(1, Ordering::Relaxed) % 64 == 0 {
                            streams[n % 2].synchronize().unwrap();
                        }
                    }
                });
            }
            let _stop = Stop(&stop);
            for _ in 0..100 {
                in_child(|| child_among_submitters(&streams));
            }
        });
        streams
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
        assert_eq!(ran.load(Ordering::Relaxed), submitted.into_inner());
    });
}

/// Ends the submitters, also where a check failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn child_among_submitters(inherited: &[Stream; 2]) {
    for stream in inherited {
        refused(stream.submit(|| ()));
        refused(stream.synchronize());
        refused(at_once(stream));
        refused(stream.wait_stream(&inherited[0]));
        let _ = (stream.pending(), stream.query_idle());
        let event = stream.record_event();
        refused(event.synchronize());
        drop((event, stream.clone()));
    }
    let own = stream();
    refused(own.wait_stream(&inherited[0]));
    assert_eq!(own.call(|| 1).unwrap().wait().unwrap(), 1);
}
