//! Threads that cannot be had: errors, after which everything goes on.
#![cfg(target_os = "linux")]

use clika_runtime::{Device, Error, Stream};

use crate::log::Log;
use crate::process::{AS_IT_IS, alone};
use crate::scarcity::with_address_space;

/// Runs `body` while this process cannot get the address space for another thread's stack.
fn without_new_threads<T>(body: impl FnOnce() -> T) -> T {
    with_address_space(1 << 20, body)
}

fn refused<T>(outcome: Result<T, Error>) {
    let Err(error) = outcome else {
        panic!("a thread was made")
    };
    assert!(error.is_device(), "{error:?}");
    assert!(
        error.to_string().contains("no thread could be started"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn promise_15_a_runtime_that_could_not_start_starts_later() {
    alone(AS_IT_IS, || {
        without_new_threads(|| {
            refused(Stream::create(Device::cpu()));
            refused(Stream::default_stream(Device::cpu()));
        });
        assert_eq!(crate::stream().call(|| 1).unwrap().wait().unwrap(), 1);
    });
}

#[test]
fn promise_15_host_work_without_a_thread_is_refused_and_nothing_is_submitted() {
    alone(AS_IT_IS, || {
        let (stream, log) = (crate::stream(), Log::new());
        let entries = log.clone();
        without_new_threads(|| {
            refused(stream.submit_host(move || entries.add("refused")));
            refused(stream.call_host(|| ()));
            log.note(&stream, "native");
            stream.synchronize().unwrap();
        });
        assert_eq!(stream.call_host(|| 2).unwrap().wait().unwrap(), 2);
        stream.synchronize().unwrap();
        assert_eq!(log.take(), ["native"]);
    });
}

#[test]
fn promise_15_work_goes_on_with_the_threads_there_are() {
    alone(
        &[("CLIKA_WORKERS", "4"), ("CLIKA_HOST_THREADS", "4")],
        || {
            let streams: Vec<Stream> = (0..50).map(|_| crate::stream()).collect();
            streams[0].call_host(|| ()).unwrap().wait().unwrap();
            without_new_threads(|| {
                for stream in &streams {
                    stream.submit(std::thread::yield_now).unwrap();
                    stream.submit_host(std::thread::yield_now).unwrap();
                }
                streams
                    .iter()
                    .for_each(|stream| stream.synchronize().unwrap());
            });
        },
    );
}
