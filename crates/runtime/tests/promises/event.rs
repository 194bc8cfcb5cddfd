//! Events, and the order they give between streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clika_runtime::{Event, Stream};

use crate::gate::Gate;
use crate::joined::joined;
use crate::log::Log;
use crate::stream;
use crate::waiting::block_on;
use crate::watchdog::watch;

#[test]
fn promise_05_an_event_marks_what_was_submitted_before_it_and_nothing_after() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let first = Gate::on(&stream);
    log.note(&stream, "before");
    let event = stream.record_event();
    let second = Gate::on(&stream);
    log.note(&stream, "after");
    assert!(!event.query());
    first.open();
    event.synchronize().unwrap();
    assert!(event.query());
    assert_eq!(log.take(), ["before"]);
    assert!(
        !stream.query_idle(),
        "what follows the event is not waited for"
    );
    second.open();
    stream.synchronize().unwrap();
}

#[test]
fn promise_05_an_event_on_a_stream_without_work_is_reached() {
    let _watchdog = watch();
    let stream = stream();
    let (plain, timed) = (stream.record_event(), stream.record_timed_event().unwrap());
    assert!(plain.query());
    timed.synchronize().unwrap();
    plain.synchronize_timeout(Duration::ZERO).unwrap();
    assert_eq!((plain.is_timed(), timed.is_timed()), (false, true));
    assert_eq!(plain.stream(), timed.stream());
}

#[test]
fn promise_05_recording_a_plain_event_costs_no_operation() {
    let stream = stream();
    let gate = Gate::on(&stream);
    let events: Vec<Event> = (0..100).map(|_| stream.record_event()).collect();
    assert_eq!(stream.pending(), 1);
    gate.open();
    events.iter().for_each(|event| event.synchronize().unwrap());
}

#[test]
fn promise_05_events_are_reached_in_the_order_of_their_stream() {
    let _watchdog = watch();
    let stream = stream();
    let gates: Vec<(Gate, Event)> = (0..20)
        .map(|_| (Gate::on(&stream), stream.record_event()))
        .collect();
    let events: Vec<Event> = gates.iter().map(|(_, event)| event.clone()).collect();
    for (n, (gate, event)) in gates.into_iter().enumerate() {
        gate.open();
        event.synchronize().unwrap();
        assert!(events[..=n].iter().all(Event::query));
        assert!(!events[n + 1..].iter().any(Event::query));
    }
}

#[test]
fn promise_05_a_stream_that_waits_sees_everything_before_the_mark() {
    let _watchdog = watch();
    let streams = [stream(), stream()];
    let value = Arc::new(AtomicU64::new(0));
    for n in 0..2_000 {
        let [writer, reader] = if n % 2 == 0 { [0, 1] } else { [1, 0] };
        let (write, read) = (value.clone(), value.clone());
        streams[writer]
            .submit(move || write.store(n, Ordering::Relaxed))
            .unwrap();
        streams[reader]
            .wait_event(&streams[writer].record_event())
            .unwrap();
        streams[reader]
            .submit(move || assert_eq!(read.load(Ordering::Relaxed), n))
            .unwrap();
        streams[writer].wait_stream(&streams[reader]).unwrap();
    }
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn promise_05_a_wait_uses_the_mark_as_it_was_at_the_call() {
    let _watchdog = watch();
    let (producer, consumer, log) = (stream(), stream(), Log::new());
    let first = Gate::on(&producer);
    consumer.wait_stream(&producer).unwrap();
    log.note(&consumer, "consumer");
    // Submitted after the call, so the consumer does not wait for it.
    let second = Gate::on(&producer);
    first.open();
    consumer.synchronize().unwrap();
    assert_eq!(log.take(), ["consumer"]);
    assert!(!producer.query_idle());
    second.open();
    producer.synchronize().unwrap();
}

#[test]
fn promise_05_recording_again_makes_another_event() {
    let _watchdog = watch();
    let (producer, consumer) = (stream(), stream());
    let first = Gate::on(&producer);
    let mut event = producer.record_event();
    consumer.wait_event(&event).unwrap();
    let second = Gate::on(&producer);
    event = producer.record_event();
    first.open();
    consumer.synchronize().unwrap();
    assert!(!event.query());
    second.open();
    event.synchronize().unwrap();
}

#[test]
fn promise_05_only_what_is_submitted_after_the_wait_waits() {
    let _watchdog = watch();
    let (producer, consumer, log) = (stream(), stream(), Log::new());
    let gate = Gate::on(&producer);
    log.note(&consumer, "before");
    let before = consumer.record_event();
    consumer.wait_stream(&producer).unwrap();
    log.note(&consumer, "after");
    before.synchronize().unwrap();
    assert_eq!(log.take(), ["before"]);
    log.note(&producer, "producer");
    gate.open();
    consumer.synchronize().unwrap();
    producer.synchronize().unwrap();
    let mut entries = log.take();
    entries.sort_unstable();
    assert_eq!(entries, ["after", "producer"]);
}

#[test]
fn promise_05_a_wait_holds_no_thread() {
    let _watchdog = watch();
    let producer = stream();
    let gate = Gate::on(&producer);
    // Many more than there are workers.
    let parked: Vec<Stream> = (0..500).map(|_| stream()).collect();
    for stream in &parked {
        stream.wait_stream(&producer).unwrap();
        stream.submit(|| ()).unwrap();
    }
    assert_eq!(stream().call(|| 3).unwrap().wait().unwrap(), 3);
    assert!(!parked.iter().any(Stream::query_idle));
    gate.open();
    parked
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn promise_05_waits_for_ones_own_stream_change_nothing() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    stream.wait_stream(&stream).unwrap();
    stream.wait_event(&stream.record_event()).unwrap();
    gate.open();
    stream.synchronize().unwrap();
}

#[test]
fn promise_05_one_event_serves_many_waiters_of_every_kind() {
    let _watchdog = watch();
    let producer = stream();
    let gate = Gate::on(&producer);
    let event = producer.record_event();
    let streams: Vec<Stream> = (0..10).map(|_| stream()).collect();
    streams
        .iter()
        .for_each(|stream| stream.wait_event(&event).unwrap());
    joined(|threads| {
        for _ in 0..4 {
            threads.spawn(|| event.synchronize().unwrap());
            threads.spawn(|| block_on(&event).unwrap());
        }
        gate.open();
    });
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn promise_05_an_event_outlives_the_handles_of_its_stream() {
    let _watchdog = watch();
    let (producer, consumer, log) = (stream(), stream(), Log::new());
    let gate = Gate::on(&producer);
    log.note(&producer, 1);
    let event = producer.record_event();
    drop(producer);
    consumer.wait_event(&event).unwrap();
    drop(event);
    log.note(&consumer, 2);
    gate.open();
    consumer.synchronize().unwrap();
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn promise_05_streams_order_themselves_in_a_ring() {
    const LAPS: u64 = 200;
    let _watchdog = watch();
    let ring: Vec<Stream> = (0..10).map(|_| stream()).collect();
    let count = Arc::new(AtomicU64::new(0));
    for n in 0..LAPS * 10 {
        let stream = &ring[n as usize % 10];
        stream.wait_stream(&ring[(n as usize + 9) % 10]).unwrap();
        let count = count.clone();
        let step = move || assert_eq!(count.swap(n + 1, Ordering::Relaxed), n);
        stream.submit(step).unwrap();
    }
    ring.iter().for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(count.load(Ordering::Relaxed), LAPS * 10);
}

#[test]
fn promise_05_elapsed_time_is_that_of_the_work_between() {
    let _watchdog = watch();
    let stream = stream();
    let start = stream.record_timed_event().unwrap();
    stream
        .submit(|| (0..100_000).for_each(|n: u32| _ = std::hint::black_box(n)))
        .unwrap();
    let end = stream.record_timed_event().unwrap();
    end.synchronize().unwrap();
    let forth = start.elapsed_seconds(&end).unwrap();
    assert!(forth > 0.0);
    assert_eq!(end.elapsed_seconds(&start).unwrap(), -forth);
    assert!(start.elapsed_time(&end).unwrap() > Duration::ZERO);
    assert_eq!(end.elapsed_time(&start).unwrap(), Duration::ZERO);
    assert_eq!(start.elapsed_time(&start).unwrap(), Duration::ZERO);
}

#[test]
fn promise_05_elapsed_time_spans_streams() {
    let _watchdog = watch();
    let (one, other) = (stream(), &crate::default_stream::alone().stream);
    let start = one.record_timed_event().unwrap();
    other.wait_event(&start).unwrap();
    let end = other.record_timed_event().unwrap();
    end.synchronize().unwrap();
    assert!(start.elapsed_seconds(&end).unwrap() >= 0.0);
}

#[test]
fn promise_05_elapsed_time_needs_two_timed_and_reached_events() {
    let _watchdog = watch();
    let stream = stream();
    let timed = stream.record_timed_event().unwrap();
    timed.synchronize().unwrap();
    let plain = stream.record_event();
    let gate = Gate::on(&stream);
    let pending = stream.record_timed_event().unwrap();
    for (start, end, complaint) in [
        (&plain, &timed, "the start event has no time"),
        (&timed, &plain, "the end event has no time"),
        (&pending, &timed, "the start event is not reached"),
        (&timed, &pending, "the end event is not reached"),
    ] {
        let error = start.elapsed_time(end).unwrap_err();
        assert!(error.is_invalid_argument(), "{error:?}");
        assert!(error.to_string().contains(complaint), "{error}");
        assert!(
            start
                .elapsed_seconds(end)
                .unwrap_err()
                .is_invalid_argument()
        );
    }
    gate.open();
    pending.synchronize().unwrap();
    timed.elapsed_time(&pending).unwrap();
}

#[test]
fn promise_05_a_timed_event_behind_a_failure_has_its_time_all_the_same() {
    let _watchdog = watch();
    let stream = stream();
    let start = stream.record_timed_event().unwrap();
    stream.submit(|| Err("broken")).unwrap();
    let end = stream.record_timed_event().unwrap();
    assert!(end.synchronize().unwrap_err().is_operation());
    assert!(end.query());
    assert!(start.elapsed_seconds(&end).unwrap() > 0.0);
    stream.synchronize().unwrap_err();
}
