//! Futures: values, cancellation, and futures that nobody waits for.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use clika_runtime::{Future, Stream};

use crate::gate::Gate;
use crate::joined::joined;
use crate::log::Log;
use crate::panic::throw;
use crate::stream;
use crate::waiting::{begin, block_on, until};
use crate::watchdog::watch;

#[test]
fn promise_14_values_of_any_kind_come_back() {
    let _watchdog = watch();
    let stream = stream();
    assert_eq!(
        stream
            .call(|| String::from("text"))
            .unwrap()
            .wait()
            .unwrap(),
        "text"
    );
    assert_eq!(
        stream.call(|| [7_u8; 100_000]).unwrap().wait().unwrap()[99_999],
        7
    );
    assert_eq!(
        stream.call(|| Cell::new(3)).unwrap().wait().unwrap().get(),
        3
    );
    assert!(
        stream
            .call(|| Err::<u8, _>("a value"))
            .unwrap()
            .wait()
            .unwrap()
            .is_err()
    );
    assert_eq!(
        stream
            .call(crate::stream)
            .unwrap()
            .wait()
            .unwrap()
            .pending(),
        0
    );
    let future = stream.call(|| 4).unwrap();
    assert_eq!(
        thread::spawn(move || future.wait())
            .join()
            .unwrap()
            .unwrap(),
        4
    );
}

#[test]
fn promise_10_a_value_is_taken_once() {
    let _watchdog = watch();
    let stream = stream();
    let future = stream.call(|| 5).unwrap();
    assert_eq!(future.wait_timeout(Duration::MAX).unwrap(), 5);
    assert!(future.is_done());
    let error = future.wait_timeout(Duration::MAX).unwrap_err();
    assert!(error.is_invalid_argument(), "{error:?}");
    assert!(error.to_string().contains("taken before"), "{error}");
    assert!(future.wait().unwrap_err().is_invalid_argument());
}

#[test]
fn promise_10_one_of_many_threads_takes_the_value() {
    let _watchdog = watch();
    let stream = stream();
    for _ in 0..50 {
        let gate = Gate::on(&stream);
        let future = stream.call(|| ()).unwrap();
        let taken = AtomicU32::new(0);
        joined(|threads| {
            for _ in 0..4 {
                threads.spawn(|| match future.wait_timeout(Duration::MAX) {
                    Ok(()) => {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => assert!(error.is_invalid_argument(), "{error:?}"),
                });
            }
            gate.open();
        });
        assert_eq!(taken.into_inner(), 1);
    }
}

#[test]
fn promise_07_every_thread_that_asks_gets_the_failure() {
    let _watchdog = watch();
    let stream = stream();
    for _ in 0..50 {
        let future = stream.call(|| throw("broken")).unwrap();
        until(|| future.is_done());
        joined(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..50 {
                        let error = future.wait_timeout(Duration::MAX).unwrap_err();
                        assert!(error.is_operation(), "{error:?}");
                    }
                });
            }
        });
    }
}

#[test]
fn promise_10_work_that_has_not_started_is_cancelled_and_the_stream_goes_on() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    let entries = log.clone();
    let future = stream.call(move || entries.add("cancelled")).unwrap();
    let failing = stream.call(|| throw("cancelled too")).unwrap();
    log.note(&stream, "after");
    assert!(!future.is_done() && !future.is_cancelled());
    assert!(future.cancel() && failing.cancel());
    assert!(future.cancel(), "it is cancelled: still true");
    assert!(future.is_cancelled() && future.is_done());
    // Both tell at once, while the gate is closed.
    let error = future.wait_timeout(Duration::MAX).unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    assert!(
        std::error::Error::source(&error).is_none(),
        "no failure caused it"
    );
    assert!(failing.wait().unwrap_err().is_cancelled());
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(log.take(), ["after"]);
    assert!(future.is_cancelled());
}

#[test]
fn promise_10_a_cancelled_future_is_awaited_at_once() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let future = stream.call(|| ()).unwrap();
    assert!(future.cancel());
    assert!(block_on(future).unwrap_err().is_cancelled());
    gate.open();
    stream.synchronize().unwrap();
}

#[test]
fn promise_10_work_that_has_started_is_not_cancelled() {
    let _watchdog = watch();
    let stream = stream();
    let (begin, begun) = std::sync::mpsc::channel();
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let work = move || {
        begin.send(()).unwrap();
        let _ = opened.recv();
        6
    };
    let future = stream.call_host(work).unwrap();
    begun.recv().unwrap();
    assert!(!future.cancel() && !future.is_cancelled());
    drop(open);
    until(|| future.is_done());
    assert!(!future.cancel() && !future.is_cancelled());
    assert_eq!(future.wait_timeout(Duration::ZERO).unwrap(), 6);
    assert!(!future.cancel() && !future.is_cancelled());
}

#[test]
fn promise_10_skipped_and_failed_work_is_not_cancelled() {
    let _watchdog = watch();
    let stream = stream();
    let failed = stream.call(|| throw("broken")).unwrap();
    let skipped = stream.call(|| ()).unwrap();
    until(|| stream.query_idle());
    for future in [&failed, &skipped] {
        assert!(future.is_done());
        assert!(!future.cancel() && !future.is_cancelled());
    }
    assert!(skipped.wait().unwrap_err().is_cancelled());
    assert!(failed.wait().unwrap_err().is_operation());
}

#[test]
fn promise_10_cancelling_races_with_the_start_and_one_of_them_wins() {
    let _watchdog = watch();
    let stream = stream();
    for _ in 0..2_000 {
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        let future = stream
            .call(move || count.fetch_add(1, Ordering::Relaxed))
            .unwrap();
        let cancelled = future.cancel();
        assert_eq!(future.is_cancelled(), cancelled);
        stream.synchronize().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), u32::from(!cancelled));
        assert_eq!(future.wait().is_err(), cancelled);
    }
}

#[test]
fn promise_10_cancelled_stays_true_while_others_ask() {
    let _watchdog = watch();
    let stream = stream();
    let gate = Gate::on(&stream);
    let future = stream.call(|| ()).unwrap();
    assert!(future.cancel());
    joined(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..20_000 {
                    assert!(
                        future
                            .wait_timeout(Duration::ZERO)
                            .unwrap_err()
                            .is_cancelled()
                    );
                    assert!(future.is_cancelled() && future.is_done());
                }
            });
        }
    });
    gate.open();
}

#[test]
fn promise_10_work_whose_future_is_dropped_runs() {
    let _watchdog = watch();
    let (stream, log) = (stream(), Log::new());
    let gate = Gate::on(&stream);
    let entries = log.clone();
    drop(stream.call(move || entries.add("dropped")).unwrap());
    let entries = log.clone();
    drop(begin(
        stream
            .call(move || entries.add("awaited and dropped"))
            .unwrap(),
    ));
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(log.take(), ["dropped", "awaited and dropped"]);
}

#[test]
fn promise_10_a_value_nobody_takes_is_dropped_once() {
    struct Counted(Arc<AtomicU32>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _watchdog = watch();
    let stream = stream();
    let drops = Arc::new(AtomicU32::new(0));
    let submit = |stream: &Stream| -> Future<Counted> {
        let counted = Counted(drops.clone());
        stream.call(move || counted).unwrap()
    };
    let gate = Gate::on(&stream);
    drop(submit(&stream));
    let (late, cancelled) = (submit(&stream), submit(&stream));
    assert!(cancelled.cancel());
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(
        drops.load(Ordering::Relaxed),
        2,
        "the dropped future's and the cancelled one's"
    );
    drop((late, cancelled));
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}

#[test]
fn promise_07_a_cancelled_failure_fails_nothing_that_waits_for_it() {
    let _watchdog = watch();
    let (stream, other) = (stream(), crate::stream());
    let gate = Gate::on(&stream);
    let failing = stream.call(|| throw("never")).unwrap();
    other.wait_stream(&stream).unwrap();
    assert!(failing.cancel());
    gate.open();
    other.synchronize().unwrap();
    stream.synchronize().unwrap();
}
