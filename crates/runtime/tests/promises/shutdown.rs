//! The end: work is drained up to a bound, then dropped, and nobody hangs.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clika_runtime::{Device, Error, Stream, shutdown};

use crate::gate::Gate;
use crate::log::Log;
use crate::process::{AS_IT_IS, alone};
use crate::stream;
use crate::threads;
use crate::waiting::{begin, block_on};

/// Checks that nothing can be submitted any more.
fn refuses_work(stream: &Stream) {
    let refusals: [Option<Error>; 6] = [
        stream.submit(|| ()).err(),
        stream.submit_host(|| ()).err(),
        stream.call(|| ()).err(),
        stream.call_host(|| ()).err(),
        stream.record_timed_event().err(),
        stream.wait_stream(&crate::stream()).err(),
    ];
    for error in refusals {
        let error = error.unwrap();
        assert!(
            error.is_device() && error.to_string().contains("shut down"),
            "{error:?}"
        );
    }
    let _ = (
        stream.synchronize(),
        stream.record_event().query(),
        stream.query_idle(),
    );
}

#[test]
fn promise_12_a_shutdown_lets_all_work_end_first() {
    alone(AS_IT_IS, || {
        let log = Log::new();
        for n in 0..100 {
            let stream = stream();
            stream.submit_host(thread::yield_now).unwrap();
            log.note(&stream, n);
        }
        assert!(shutdown(Duration::MAX));
        let mut ran = log.take();
        ran.sort_unstable();
        assert!(ran.into_iter().eq(0..100));
    });
}

#[test]
fn promise_12_work_under_way_may_submit_more_before_the_end() {
    alone(AS_IT_IS, || {
        let (stream, log) = (stream(), Log::new());
        let gate = Gate::begun_on(&stream);
        let (other, entries) = (crate::stream(), log.clone());
        stream
            .submit(move || entries.try_note(&other, "more"))
            .unwrap();
        let main = threads::current();
        let opener = thread::spawn(move || {
            main.until_asleep();
            gate.open();
        });
        assert!(shutdown(Duration::MAX));
        assert_eq!(log.take(), ["more"]);
        opener.join().unwrap();
    });
}

#[test]
fn promise_12_submitting_afterwards_is_a_device_error_and_waiting_ends() {
    alone(AS_IT_IS, || {
        let (stream, default) = (stream(), Stream::default_stream(Device::cpu()).unwrap());
        let (event, future) = (stream.record_event(), stream.call(|| 3).unwrap());
        assert!(shutdown(Duration::MAX));
        assert!(shutdown(Duration::ZERO), "again");
        refuses_work(&stream);
        refuses_work(&default);
        refuses_work(&crate::stream());
        event.synchronize().unwrap();
        assert_eq!(future.wait().unwrap(), 3);
        stream.synchronize().unwrap();
        block_on(&stream).unwrap();
    });
}

#[test]
fn promise_12_what_does_not_end_in_time_is_dropped_and_its_waiters_wake() {
    alone(AS_IT_IS, || {
        let (stream, parked, log) = (stream(), crate::stream(), Log::new());
        let gate = Gate::begun_on(&stream);
        log.note(&stream, "dropped");
        let future = stream.call(|| ()).unwrap();
        let event = stream.record_event();
        parked.wait_event(&event).unwrap();
        log.note(&parked, "dropped");
        let waits = (begin(&stream), begin(&parked), begin(&event));
        assert!(!shutdown(Duration::ZERO));
        refuses_work(&stream_without_wait(&stream));
        gate.open();
        for outcome in [block_on(waits.0), block_on(waits.1), block_on(waits.2)] {
            assert!(outcome.unwrap_err().is_cancelled());
        }
        let error = future.wait().unwrap_err();
        assert!(
            error.is_cancelled() && error.to_string().contains("shut down"),
            "{error:?}"
        );
        assert!(event.query());
        assert!(log.take().is_empty());
    });
}

/// Another stream: the one given has work that goes on, so synchronizing it would wait.
fn stream_without_wait(_busy: &Stream) -> Stream {
    stream()
}

#[test]
fn promise_12_what_lies_ready_is_dropped_as_well() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        let (begin_work, begun) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let busy = stream();
        let work = move || {
            begin_work.send(()).unwrap();
            let _ = opened.recv();
        };
        busy.submit(work).unwrap();
        begun.recv().unwrap();
        // The only worker is taken, so these wait for it.
        let ready: Vec<Stream> = (0..100).map(|_| stream()).collect();
        let counted = Arc::new(());
        for stream in &ready {
            let counted = counted.clone();
            stream.submit(move || drop(counted)).unwrap();
        }
        assert!(!shutdown(Duration::ZERO));
        for stream in &ready {
            assert!(stream.synchronize().unwrap_err().is_cancelled());
        }
        assert_eq!(
            Arc::strong_count(&counted),
            1,
            "what dropped work captured is let go"
        );
        drop(open);
        busy.synchronize().unwrap();
    });
}

#[test]
fn promise_12_a_chain_of_ten_thousand_streams_is_dropped_without_a_deep_stack() {
    alone(AS_IT_IS, || {
        let chain: Vec<Stream> = (0..10_000).map(|_| stream()).collect();
        let gate = Gate::begun_on(&chain[0]);
        for pair in chain.windows(2) {
            pair[1].wait_stream(&pair[0]).unwrap();
            pair[1].submit(|| ()).unwrap();
        }
        assert!(!shutdown(Duration::ZERO));
        gate.open();
        for stream in chain[1..].iter().rev() {
            assert!(stream.synchronize().unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn promise_12_threads_may_shut_down_at_the_same_time() {
    alone(AS_IT_IS, || {
        let (stream, ran) = (stream(), Arc::new(AtomicU64::new(0)));
        let gate = Gate::begun_on(&stream);
        let count = ran.clone();
        stream
            .submit(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        let (tell, told) = mpsc::channel();
        let enders = [(); 3].map(|()| {
            let tell = tell.clone();
            thread::spawn(move || {
                tell.send(threads::current()).unwrap();
                shutdown(Duration::MAX)
            })
        });
        told.iter().take(3).for_each(threads::Id::until_asleep);
        gate.open();
        assert!(enders.into_iter().all(|ender| ender.join().unwrap()));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn promise_12_a_thread_that_waits_for_its_turn_is_let_go() {
    alone(AS_IT_IS, || {
        let default = Stream::default_stream(Device::cpu()).unwrap();
        let stream = stream();
        let gate = Gate::begun_on(&stream);
        default.wait_stream(&stream).unwrap();
        let (tell, told) = mpsc::channel();
        let waiter = thread::spawn(move || {
            tell.send(threads::current()).unwrap();
            default.submit(|| ())
        });
        told.recv().unwrap().until_asleep();
        assert!(!shutdown(Duration::ZERO));
        gate.open();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(error.is_cancelled(), "{error:?}");
    });
}

#[test]
fn promise_12_a_program_may_end_with_work_of_every_kind_under_way() {
    alone(AS_IT_IS, || {
        let streams: Vec<Stream> = (0..10).map(|_| stream()).collect();
        let gates = ManuallyDrop::new([Gate::begun_on(&streams[0]), Gate::on(&streams[0])]);
        for pair in streams.windows(2) {
            pair[1].wait_stream(&pair[0]).unwrap();
            pair[1].submit(|| ()).unwrap();
        }
        assert_eq!(gates.len(), 2);
        let stream = stream();
        let own = stream.clone();
        stream.submit(move || spin(&own)).unwrap();
        thread::spawn(move || streams[9].synchronize());
    });
}

/// Submits itself for ever.
fn spin(stream: &Stream) {
    let own = stream.clone();
    let _ = stream.submit(move || spin(&own));
}

#[test]
fn promise_12_a_shutdown_before_the_first_use_has_nothing_to_do() {
    alone(AS_IT_IS, || {
        assert!(shutdown(Duration::MAX));
        stream().submit(|| ()).unwrap();
    });
}
