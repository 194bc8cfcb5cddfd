//! Streams as objects: which one is which, and what they tell about themselves.

use std::collections::HashSet;
use std::sync::{Barrier, mpsc};
use std::thread;

use clika_runtime::{Device, Stream};

use crate::gate::Gate;
use crate::process::{AS_IT_IS, alone};
use crate::stream;
use crate::watchdog::watch;

#[test]
fn promise_02_every_created_stream_is_really_another_one() {
    let _watchdog = watch();
    let default = Stream::default_stream(Device::cpu()).unwrap();
    let streams: Vec<Stream> = thread::scope(|scope| {
        let create = || (0..500).map(|_| stream()).collect::<Vec<_>>();
        let threads = [(); 4].map(|()| scope.spawn(create));
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(streams.iter().collect::<HashSet<_>>().len(), 2000);
    let names: HashSet<String> = streams.iter().map(Stream::name).collect();
    assert_eq!(names.len(), 2000, "generated names differ");
    assert!(
        streams
            .iter()
            .all(|stream| *stream != default && !stream.is_default())
    );
}

#[test]
fn promise_03_there_is_one_default_stream_for_all_threads() {
    let default = || Stream::default_stream(Device::cpu()).unwrap();
    let threads = [(); 4].map(|()| thread::spawn(default));
    for other in threads.map(|thread| thread.join().unwrap()) {
        assert_eq!(other, default());
        assert_eq!(other.name(), "default");
        assert!(other.is_default());
        assert_eq!(other.device(), Device::cpu());
    }
}

#[test]
fn promise_14_a_clone_is_the_same_stream() {
    let stream = stream();
    let clone = stream.clone();
    assert_eq!(stream, clone);
    assert_eq!(HashSet::from([stream.clone(), clone.clone()]).len(), 1);
    assert_eq!(stream.record_event().stream(), &clone);
    drop(stream);
    assert_eq!(clone.call(|| 2).unwrap().wait().unwrap(), 2);
}

#[test]
fn promise_02_names_are_kept_as_given_and_need_not_differ() {
    let long = "x".repeat(100_000);
    for name in ["decode", "", "default", "naïve\n\u{0}{}", &long] {
        let (one, two) = (named(name), named(name));
        assert_eq!(one.name(), name);
        assert_ne!(one, two, "a name does not make them one");
        assert!(!one.is_default());
    }
}

fn named(name: &str) -> Stream {
    Stream::named(Device::cpu(), name).unwrap()
}

#[test]
fn promise_02_pending_counts_what_is_queued_and_idle_is_none() {
    let _watchdog = watch();
    let (stream, other) = (stream(), stream());
    assert!(stream.query_idle());
    assert_eq!(stream.pending(), 0);
    let gate = Gate::on(&stream);
    for queued in 1..100 {
        assert_eq!(stream.pending(), queued);
        assert!(!stream.query_idle());
        stream.submit(|| ()).unwrap();
    }
    assert!(other.query_idle());
    other.wait_stream(&stream).unwrap();
    assert!(!other.query_idle(), "a wait is unfinished too");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!((stream.pending(), stream.query_idle()), (0, true));
    other.synchronize().unwrap();
    assert!(other.query_idle());
}

#[test]
fn promise_09_printing_never_waits() {
    let _watchdog = watch();
    let stream = named("encode");
    let (tell, told) = mpsc::channel();
    let gate = Gate::begun_on(&stream);
    let (event, future) = (stream.record_event(), stream.call(|| 1).unwrap());
    for _ in 0..2 {
        tell.send(format!("{stream:?} {event:?} {future:?}"))
            .unwrap();
    }
    gate.open();
    stream.synchronize().unwrap();
    let text = told.recv().unwrap();
    assert_eq!(text.matches("encode").count(), 3, "{text}");
    assert_eq!(text.matches("pending").count(), 2, "{text}");
    let text = format!("{stream:?} {event:?} {future:?}");
    assert!(text.contains("cpu:0"), "{text}");
    assert!(text.contains("reached") && text.contains("done"), "{text}");
    future.wait().unwrap();
}

#[test]
fn promise_14_any_threads_may_be_the_first() {
    alone(AS_IT_IS, || {
        let start = Barrier::new(8);
        thread::scope(|scope| {
            let first = || {
                start.wait();
                assert_eq!(stream().call(|| 1).unwrap().wait().unwrap(), 1);
                Stream::default_stream(Device::cpu()).unwrap()
            };
            let threads = [(); 8].map(|()| scope.spawn(first));
            let defaults = threads.map(|thread| thread.join().unwrap());
            assert!(defaults.iter().all(|default| *default == defaults[0]));
        });
    });
}
