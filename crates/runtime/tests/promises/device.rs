//! Devices and settings, as streams meet them; and native handles, of which a CPU has none.

use std::collections::HashSet;

use clika_runtime::{Device, Error, Stream, devices};

use crate::process::alone;
use crate::stream;

#[test]
fn promise_17_handles_that_name_no_stream_of_ones_own_are_refused_first() {
    for handle in [0, 1, 2] {
        let error = Stream::from_native_handle(Device::cpu(), handle).unwrap_err();
        assert!(error.is_invalid_argument(), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("native_handle {handle} is")),
            "{text}"
        );
        assert!(
            text.contains("pass the handle of a stream that was created"),
            "{text}"
        );
    }
}

#[test]
fn promise_17_a_cpu_adopts_and_lends_no_native_stream() {
    let mut errors: Vec<Error> = [3, 140_737_488_355_328, u64::MAX]
        .map(|handle| Stream::from_native_handle(Device::cpu(), handle).unwrap_err())
        .into();
    errors.push(stream().native_handle().unwrap_err());
    errors.push(
        Stream::default_stream(Device::cpu())
            .unwrap()
            .native_handle()
            .unwrap_err(),
    );
    for error in errors {
        assert!(error.is_unsupported(), "{error:?}");
        assert!(
            error.to_string().contains("cpu:0")
                && error.to_string().contains("one that this runtime created")
        );
    }
}

#[test]
fn promise_17_streams_run_on_any_device_that_is_listed() {
    let listed = devices();
    assert_eq!(listed.iter().collect::<HashSet<_>>().len(), listed.len());
    for device in listed {
        let stream = Stream::create(device).unwrap();
        assert_eq!(stream.device(), device);
        assert_eq!(stream.call(|| 1).unwrap().wait().unwrap(), 1);
    }
}

/// In a process with `value` for `name`, everything that needs the runtime must name it.
fn refuses(name: &str, value: &str) {
    let attempts: [fn() -> Result<Stream, Error>; 3] = [
        || Stream::create(Device::cpu()),
        || Stream::named(Device::cpu(), "a name"),
        || Stream::default_stream(Device::cpu()),
    ];
    for attempt in attempts.iter().chain(&attempts) {
        let error = attempt().unwrap_err();
        assert!(error.is_invalid_argument(), "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(error.to_string().contains(value), "{error}");
    }
    // What needs no runtime goes on.
    assert_eq!(devices(), [Device::cpu()]);
    assert!(
        Stream::from_native_handle(Device::cpu(), 0)
            .unwrap_err()
            .is_invalid_argument()
    );
    assert!(clika_runtime::shutdown(std::time::Duration::MAX));
}

#[test]
fn promise_17_a_bad_number_of_workers_is_refused_at_the_first_stream() {
    alone(&[("CLIKA_WORKERS", "0")], || {
        refuses("CLIKA_WORKERS", "\"0\"")
    });
}

#[test]
fn promise_17_a_bad_number_of_host_threads_is_refused_at_the_first_stream() {
    alone(&[("CLIKA_HOST_THREADS", "many")], || {
        refuses("CLIKA_HOST_THREADS", "\"many\"")
    });
}

#[test]
fn promise_17_a_bad_exit_timeout_is_refused_at_the_first_stream() {
    alone(&[("CLIKA_EXIT_TIMEOUT", "-1")], || {
        refuses("CLIKA_EXIT_TIMEOUT", "\"-1\"")
    });
}

#[cfg(target_os = "linux")]
#[test]
fn promise_17_the_number_of_workers_is_what_was_set() {
    alone(&[("CLIKA_WORKERS", "3")], || {
        let meeting = std::sync::Arc::new(std::sync::Barrier::new(3));
        let streams: Vec<Stream> = (0..8).map(|_| stream()).collect();
        for stream in &streams[..3] {
            let meeting = meeting.clone();
            stream
                .submit(move || {
                    meeting.wait();
                })
                .unwrap();
        }
        streams
            .iter()
            .for_each(|stream| stream.submit(|| ()).unwrap());
        streams
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
        let workers = crate::threads::names()
            .into_iter()
            .filter(|name| name == "clika-worker");
        assert_eq!(workers.count(), 3);
    });
}

#[test]
fn promise_17_settings_are_read_once() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        let first = stream();
        // SAFETY: this process has one test, and nothing else in it reads the environment now.
        #[expect(unsafe_code, reason = "the environment cannot be changed otherwise")]
        unsafe {
            std::env::set_var("CLIKA_WORKERS", "nonsense");
        }
        assert_ne!(stream(), first);
    });
}
