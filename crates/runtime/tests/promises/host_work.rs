//! Work that blocks.

use std::sync::{Arc, Barrier, mpsc};

use clika_runtime::Stream;

use crate::gate::Gate;
use crate::process::alone;
use crate::stream;
use crate::watchdog::watch;

#[test]
fn promise_11_sixty_blocked_functions_hold_up_nothing() {
    let _watchdog = watch();
    let blocked: Vec<(Stream, Gate)> = (0..60)
        .map(|_| {
            let stream = stream();
            let gate = Gate::begun_on(&stream);
            (stream, gate)
        })
        .collect();
    assert_eq!(stream().call(|| 1).unwrap().wait().unwrap(), 1);
    assert_eq!(stream().call_host(|| 2).unwrap().wait().unwrap(), 2);
    for (stream, gate) in blocked {
        gate.open();
        stream.synchronize().unwrap();
    }
}

#[test]
fn promise_11_blocked_functions_may_wait_for_each_other_by_other_means() {
    let _watchdog = watch();
    let meeting = Arc::new(Barrier::new(100));
    let streams: Vec<Stream> = (0..100).map(|_| stream()).collect();
    for stream in &streams {
        let meeting = meeting.clone();
        stream
            .submit_host(move || {
                meeting.wait();
            })
            .unwrap();
    }
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn promise_11_blocked_host_work_never_stops_native_work() {
    alone(
        &[("CLIKA_WORKERS", "1"), ("CLIKA_HOST_THREADS", "2")],
        || {
            let blocked: Vec<(Stream, Gate)> = (0..20)
                .map(|_| {
                    let stream = stream();
                    let gate = Gate::on(&stream);
                    (stream, gate)
                })
                .collect();
            for _ in 0..100 {
                assert_eq!(stream().call(|| 1).unwrap().wait().unwrap(), 1);
            }
            for (stream, gate) in blocked {
                gate.open();
                stream.synchronize().unwrap();
            }
        },
    );
}

#[cfg(target_os = "linux")]
#[test]
fn promise_11_the_host_lane_grows_up_to_its_setting() {
    alone(&[("CLIKA_HOST_THREADS", "3")], || {
        let (tell, told) = mpsc::channel();
        let meeting = Arc::new(Barrier::new(3));
        for _ in 0..30 {
            let (tell, meeting) = (tell.clone(), meeting.clone());
            let work = move || {
                // Only three at a time can get on.
                meeting.wait();
                tell.send(std::thread::current().id()).unwrap();
            };
            stream().submit_host(work).unwrap();
        }
        drop(tell);
        let threads: std::collections::HashSet<_> = told.iter().collect();
        assert_eq!(threads.len(), 3);
        let host = crate::threads::names()
            .into_iter()
            .filter(|name| name == "clika-host");
        assert_eq!(host.count(), 3);
    });
}

#[test]
fn promise_11_host_work_that_waits_for_streams_gives_its_thread_up() {
    alone(
        &[("CLIKA_WORKERS", "1"), ("CLIKA_HOST_THREADS", "1")],
        || {
            let (outer, inner) = (stream(), stream());
            let (deep, deeper) = (inner.clone(), stream());
            let value = outer.call_host(move || {
                let inner =
                    deep.call_host(move || deeper.call_host(|| 1).unwrap().wait().unwrap() + 1);
                inner.unwrap().wait().unwrap() + 1
            });
            assert_eq!(value.unwrap().wait().unwrap(), 3);
        },
    );
}

#[test]
fn promise_11_native_work_that_waits_for_the_default_streams_turn_gives_its_worker_up() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        let default = Stream::default_stream(clika_runtime::Device::cpu()).unwrap();
        let (other, stream) = (stream(), stream());
        let gate = Gate::on(&other);
        other.submit(|| ()).unwrap();
        default.wait_stream(&other).unwrap();
        let (begin, begun) = mpsc::channel();
        let work = move || {
            begin.send(()).unwrap();
            // The turn comes when the other stream's native work is done.
            default.submit(|| ())
        };
        stream.submit(work).unwrap();
        begun.recv().unwrap();
        gate.open();
        stream.synchronize().unwrap();
    });
}
