//! Many streams: what each costs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clika_runtime::Stream;

use crate::process::{AS_IT_IS, alone};
use crate::stream;
use crate::threads;
use crate::watchdog::watch;

const MANY: u64 = 10_000;

/// The bytes of memory that this process has resident.
pub(crate) fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * page_size()
}

/// Checks that no more is resident than promised. A sanitizer needs memory of its own for each
/// allocation, so under one this only prints.
pub(crate) fn at_most(promised: f64, measured: f64, what: &str) {
    println!("{what}: {measured:.0} bytes");
    let sanitized = option_env!("RUSTFLAGS").is_some_and(|flags| flags.contains("sanitizer"));
    assert!(
        sanitized || measured <= promised,
        "{what}: {measured:.0} bytes, over {promised:.0}"
    );
}

#[expect(unsafe_code, reason = "the standard library does not tell")]
fn page_size() -> usize {
    // SAFETY: the call has no conditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}

/// Submits to each stream and waits for each.
fn use_all(streams: &[Stream], count: &Arc<AtomicU64>) {
    for stream in streams {
        let count = count.clone();
        stream
            .submit(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn promise_02_ten_thousand_idle_streams_cost_little_memory_and_no_threads() {
    alone(AS_IT_IS, || {
        let count = Arc::new(AtomicU64::new(0));
        use_all(&(0..10).map(|_| stream()).collect::<Vec<_>>(), &count);
        let mut streams = Vec::with_capacity(MANY as usize);
        let (threads, before) = (worker_threads(), resident());
        streams.extend((0..MANY).map(|_| stream()));
        let fresh = (resident() - before) as f64 / MANY as f64;
        use_all(&streams, &count);
        let idle = (resident() - before) as f64 / MANY as f64;
        assert!(
            worker_threads() <= threads.max(workers()),
            "{:?}",
            threads::names()
        );
        assert_eq!(count.load(Ordering::Relaxed), MANY + 10);
        at_most(600.0, fresh, "a fresh stream");
        at_most(600.0, idle, "a used and idle stream");
    });
}

fn worker_threads() -> usize {
    threads::names()
        .iter()
        .filter(|name| name.starts_with("clika"))
        .count()
}

/// As many threads as the runtime may have for this, whatever the number of streams.
fn workers() -> usize {
    let set = std::env::var("CLIKA_WORKERS")
        .ok()
        .and_then(|text| text.parse().ok());
    set.unwrap_or_else(|| clika_runtime::Device::cpu().compute_units())
}

#[test]
fn promise_02_ten_thousand_streams_all_waiting_are_released_at_once() {
    let _watchdog = watch();
    let source = stream();
    let gate = crate::gate::Gate::on(&source);
    let count = Arc::new(AtomicU64::new(0));
    let streams: Vec<Stream> = (0..MANY).map(|_| stream()).collect();
    for stream in &streams {
        let count = count.clone();
        stream.wait_stream(&source).unwrap();
        stream
            .submit(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
    gate.open();
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(count.load(Ordering::Relaxed), MANY);
}

#[test]
fn promise_02_ten_thousand_streams_in_a_chain_end() {
    let _watchdog = watch();
    let streams: Vec<Stream> = (0..MANY).map(|_| stream()).collect();
    let gate = crate::gate::Gate::on(&streams[0]);
    let count = Arc::new(AtomicU64::new(0));
    for (n, pair) in (0..).zip(streams.windows(2)) {
        pair[1].wait_stream(&pair[0]).unwrap();
        let count = count.clone();
        pair[1]
            .submit(move || assert_eq!(count.swap(n + 1, Ordering::Relaxed), n))
            .unwrap();
    }
    gate.open();
    streams.last().unwrap().synchronize().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), MANY - 1);
}

#[test]
fn promise_07_a_failure_runs_down_a_chain_of_ten_thousand_streams() {
    let _watchdog = watch();
    let streams: Vec<Stream> = (0..MANY).map(|_| stream()).collect();
    let gate = crate::gate::Gate::on(&streams[0]);
    streams[0].submit(|| Err("origin")).unwrap();
    streams
        .windows(2)
        .for_each(|pair| pair[1].wait_stream(&pair[0]).unwrap());
    gate.open();
    for stream in streams.iter().rev() {
        assert!(
            stream
                .synchronize()
                .unwrap_err()
                .to_string()
                .contains("origin")
        );
    }
}
