//! Waits on the host: time limits and `await`.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use clika_executor::sync::Mutex;
use clika_runtime::{Event, EventWait, Future, FutureWait, Stream, StreamWait};

use crate::gate::Gate;
use crate::joined::joined;
use crate::log::Log;
use crate::process::{AS_IT_IS, alone};
use crate::stream;
use crate::waiting::{begin, block_on, poll, until};
use crate::watchdog::watch;

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn promise_09_a_wait_of_no_time_polls_and_goes_on_afterwards() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let future = stream.call(|| 5).unwrap();
    let event = stream.record_event();
    for _ in 0..3 {
        assert!(
            stream
                .synchronize_timeout(Duration::ZERO)
                .unwrap_err()
                .is_timeout()
        );
        assert!(
            event
                .synchronize_timeout(Duration::ZERO)
                .unwrap_err()
                .is_timeout()
        );
        assert!(
            future
                .wait_timeout(Duration::ZERO)
                .unwrap_err()
                .is_timeout()
        );
    }
    gate.open();
    stream.synchronize().unwrap();
    stream.synchronize_timeout(Duration::ZERO).unwrap();
    event.synchronize_timeout(Duration::ZERO).unwrap();
    assert_eq!(future.wait_timeout(Duration::ZERO).unwrap(), 5);
}

#[test]
fn promise_09_a_time_limit_passes_and_the_work_goes_on() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    log.note(&stream, "ran");
    let error = stream
        .synchronize_timeout(Duration::from_millis(5))
        .unwrap_err();
    assert!(error.is_timeout());
    assert!(error.to_string().contains(&stream.name()), "{error}");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(log.take(), ["ran"]);
}

#[test]
fn promise_09_the_longest_time_limits_wait_for_ever() {
    let _watchdog = watch();
    for limit in [
        Duration::MAX,
        Duration::from_secs(u64::MAX / 2),
        Duration::from_secs(1 << 40),
    ] {
        let stream = stream();
        let gate = Gate::on(&stream);
        let (future, event) = (stream.call(|| 5).unwrap(), stream.record_event());
        thread::scope(|scope| {
            let waits = [
                scope.spawn(|| stream.synchronize_timeout(limit)),
                scope.spawn(|| event.synchronize_timeout(limit)),
                scope.spawn(|| future.wait_timeout(limit).map(|value| assert_eq!(value, 5))),
            ];
            gate.open();
            for wait in waits {
                wait.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn promise_05_all_that_can_be_waited_for_can_be_awaited() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    log.note(&stream, "before");
    let event = stream.record_event();
    let future = stream.call(|| "value").unwrap();
    let waits = (
        begin(&stream),
        begin(&event),
        begin(event.clone()),
        begin(future),
    );
    let whole = begin(stream.clone());
    gate.open();
    block_on(waits.1).unwrap();
    assert_eq!(log.take(), ["before"]);
    block_on(waits.2).unwrap();
    assert_eq!(block_on(waits.3).unwrap(), "value");
    block_on(waits.0).unwrap();
    block_on(whole).unwrap();
}

#[test]
fn promise_05_what_is_reached_is_awaited_without_a_wake() {
    let _watchdog = watch();
    let stream = stream();
    let future = stream.call(|| 1).unwrap();
    stream.synchronize().unwrap();
    let mut wait = future.into_future();
    assert!(matches!(
        poll(Pin::new(&mut wait), Waker::noop()),
        Poll::Ready(Ok(1))
    ));
    let mut wait = (&stream).into_future();
    assert!(poll(Pin::new(&mut wait), Waker::noop()).is_ready());
}

#[test]
fn promise_05_a_task_is_woken_once_by_the_last_waker_it_gave() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let (first, last) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let mut wait = (&stream).into_future();
    for wakes in [&first, &last, &last] {
        assert!(poll(Pin::new(&mut wait), &Waker::from(wakes.clone())).is_pending());
    }
    // Behind it, so it wakes no task of this wait.
    stream.submit(|| ()).unwrap();
    gate.open();
    stream.synchronize().unwrap();
    until(|| last.0.load(Ordering::SeqCst) > 0);
    assert_eq!(last.0.load(Ordering::SeqCst), 1);
    assert_eq!(first.0.load(Ordering::SeqCst), 0);
    assert!(poll(Pin::new(&mut wait), Waker::noop()).is_ready());
}

#[test]
fn promise_05_an_await_that_is_dropped_leaves_nothing_behind() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let wakes = Arc::new(Wakes::default());
    let mut wait = (&stream).into_future();
    assert!(poll(Pin::new(&mut wait), &Waker::from(wakes.clone())).is_pending());
    drop(wait);
    assert_eq!(Arc::strong_count(&wakes), 1, "its waker is let go");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
}

#[test]
fn promise_05_a_waker_may_submit_and_drop_handles() {
    struct Chain(Mutex<Option<(Stream, mpsc::Sender<()>)>>);
    impl Wake for Chain {
        fn wake(self: Arc<Self>) {
            let (stream, done) = self.0.lock().take().unwrap();
            stream.submit(move || done.send(())).unwrap();
        }
    }
    let _watchdog = watch();
    let (stream, (done, woken)) = (stream(), mpsc::channel());
    let gate = Gate::on(&stream);
    let mut wait = (&stream).into_future();
    let waker = Waker::from(Arc::new(Chain(Mutex::new(Some((stream, done))))));
    assert!(poll(Pin::new(&mut wait), &waker).is_pending());
    gate.open();
    woken.recv().unwrap();
}

#[test]
fn promise_08_a_waker_that_panics_harms_nobody() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    let mut wait = (&stream).into_future();
    assert!(poll(Pin::new(&mut wait), &Waker::from(Arc::new(Bad))).is_pending());
    log.note(&stream, "after");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(log.take(), ["after"]);
}

#[cfg(target_os = "linux")]
#[test]
fn promise_09_a_sleeping_wait_costs_no_processor_time() {
    alone(AS_IT_IS, || {
        let stream = stream();
        let gate = Gate::begun_on(&stream);
        crate::rest::at_rest(|| {
            for _ in 0..2 {
                let half = Duration::from_millis(500);
                assert!(stream.synchronize_timeout(half).unwrap_err().is_timeout());
            }
        });
        gate.open();
        stream.synchronize().unwrap();
    });
}

#[test]
fn promise_09_a_thousand_waits_for_one_stream_all_end() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let waits: Vec<StreamWait> = (0..1000).map(|_| begin(&stream)).collect();
    joined(|threads| {
        for _ in 0..16 {
            threads.spawn(|| stream.synchronize().unwrap());
        }
        gate.open();
    });
    waits.into_iter().for_each(|wait| block_on(wait).unwrap());
}

#[test]
fn promise_14_every_handle_may_go_to_any_thread() {
    fn any_thread<T: Send + Sync + 'static>() {}
    any_thread::<Stream>();
    any_thread::<Event>();
    any_thread::<StreamWait>();
    any_thread::<EventWait>();
    any_thread::<clika_runtime::Device>();
    any_thread::<clika_runtime::Error>();
    // The value need not be shared between threads to be sent to one.
    any_thread::<Future<std::cell::Cell<u8>>>();
    any_thread::<FutureWait<std::cell::Cell<u8>>>();
}
