//! Many operations, streams and threads.

use std::sync::{Arc, Weak};

use clika_runtime::{Buffer, foreign};

use crate::gate::Gate;
use crate::joined::joined;
use crate::process::{AS_IT_IS, alone};
#[cfg(target_os = "linux")]
use crate::scarcity::with_address_space;
use crate::waiting::until;
use crate::watchdog::watch;
use crate::{CPU, default_stream, fresh, holding, live_bytes, stream};

/// Submits a chain of `links` temporaries ahead of a first operation that is held. Each link touches
/// one byte of the one before and of its own, which is memory all the same.
fn chain(links: u64, nbytes: usize) {
    let (one, other) = (stream(), stream());
    let gate = Gate::begun_on(&one);
    let mut last = fresh(nbytes);
    one.run(last.write::<u8>(), |bytes| bytes[0] = 0).unwrap();
    for link in 0..links {
        let next = fresh(nbytes);
        let step = |(from, to): (&[u8], &mut [u8])| to[0] = from[0].wrapping_add(1);
        let stream = if link % 64 < 60 { &one } else { &other };
        stream
            .run((last.read::<u8>(), next.write::<u8>()), step)
            .unwrap();
        last = next;
    }
    assert_eq!(live_bytes(), 0, "nothing has run, so nothing is there");
    gate.open();
    assert_eq!(
        default_stream()
            .copy_out::<u8>(&last, 0..1)
            .unwrap()
            .wait()
            .unwrap(),
        [links as u8]
    );
    drop(last);
    // The other stream may have let go of its last buffers later than this one was read.
    one.synchronize().unwrap();
    other.synchronize().unwrap();
    let stats = CPU.memory_stats().unwrap();
    assert!(stats.peak_bytes <= 4 * nbytes, "{stats:?}");
    assert!(stats.allocations - stats.reused <= 4, "{stats:?}");
    assert_eq!((stats.live_bytes, stats.live_blocks), (0, 0));
}

#[test]
fn promise_6_ten_thousand_temporaries_submitted_ahead_peak_at_a_few_blocks() {
    alone(AS_IT_IS, || chain(10_000, 1 << 18));
}

#[test]
fn promise_6_large_temporaries_submitted_ahead_peak_at_a_few_blocks() {
    // Freed memory is filled where debug assertions are on: ten thousand then take minutes.
    let soaks = std::env::var_os("CLIKA_SOAK").is_some();
    let links = if soaks || !cfg!(debug_assertions) {
        10_000
    } else {
        100
    };
    alone(AS_IT_IS, || chain(links, 64 << 20));
}

#[test]
fn promise_2_a_buffer_that_ten_thousand_streams_read_keeps_none_of_them() {
    let _watchdog = watch();
    let buffer = holding(&[7; 64]);
    let mut strands: Vec<Weak<_>> = vec![];
    for _ in 0..10_000 {
        let stream = stream();
        stream
            .run(buffer.read::<u8>(), |bytes| assert_eq!(bytes, [7; 64]))
            .unwrap();
        stream.synchronize().unwrap();
        strands.push(Arc::downgrade(foreign::strand(&stream)));
    }
    let kept = || {
        strands
            .iter()
            .filter(|strand| strand.strong_count() > 0)
            .count()
    };
    assert!(kept() <= 100, "{} are kept", kept());
    // A write forgets the rest.
    stream().fill(&buffer, 0..64, 0_u8).unwrap();
    until(|| kept() == 0);
}

#[test]
fn promise_2_a_buffer_that_ten_thousand_streams_write_keeps_none_of_them() {
    let _watchdog = watch();
    let buffer = fresh(64);
    let mut strands: Vec<Weak<_>> = vec![];
    for _ in 0..10_000 {
        // What such a function may see is told apart from later writes.
        let _ = foreign::number_function();
        let stream = stream();
        stream.fill(&buffer, 0..64, 1_u8).unwrap();
        stream.synchronize().unwrap();
        strands.push(Arc::downgrade(foreign::strand(&stream)));
    }
    let kept = strands.iter().filter(|strand| strand.strong_count() > 0);
    assert!(kept.count() <= 10);
}

#[test]
fn promise_4_a_writer_behind_ten_thousand_pending_readers_waits_for_all() {
    let _watchdog = watch();
    let (source, buffer) = (stream(), fresh(64));
    let gate = Gate::begun_on(&source);
    source.fill(&buffer, 0..64, 0_u8).unwrap();
    let streams: Vec<_> = (0..10_000).map(|_| stream()).collect();
    for stream in &streams {
        stream
            .run(buffer.read::<u8>(), |bytes| assert_eq!(bytes, [0; 64]))
            .unwrap();
    }
    source.fill(&buffer, 0..64, 1_u8).unwrap();
    for stream in &streams {
        stream
            .run(buffer.read::<u8>(), |bytes| assert_eq!(bytes, [1; 64]))
            .unwrap();
    }
    gate.open();
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(buffer.to_vec::<u8>().unwrap(), [1; 64]);
}

#[test]
fn promise_4_opposite_orders_of_arguments_lock_nobody_out() {
    let _watchdog = watch();
    const ROUNDS: u64 = 20_000;
    let buffers = [holding(&[0; 8]), holding(&[0; 8])];
    let streams = [stream(), default_stream()];
    joined(|threads| {
        for n in 0..4 {
            let (first, second, stream) = (&buffers[n % 2], &buffers[1 - n % 2], &streams[n / 2]);
            threads.spawn(move || {
                for _ in 0..ROUNDS {
                    let add = |(a, b): (&mut [u64], &mut [u64])| {
                        a[0] += 1;
                        b[0] += 1;
                    };
                    stream.run((first.update(), second.update()), add).unwrap();
                }
            });
        }
    });
    for buffer in &buffers {
        assert_eq!(buffer.to_vec::<u64>().unwrap(), [4 * ROUNDS]);
    }
}

#[test]
fn promise_6_nothing_is_live_once_everything_is_dropped() {
    alone(AS_IT_IS, || {
        let streams = [stream(), stream(), default_stream()];
        for size in [1, 64, 65, 4096, 5000, 1 << 16, 3 << 20] {
            for round in 0..20 {
                let stream = &streams[round % 3];
                let (a, b) = (fresh(size), holding(&vec![1; size]));
                stream.copy_in(&vec![2; size], &a, 0).unwrap();
                stream
                    .run((a.read::<u8>(), b.update::<u8>()), |(a, b)| b[0] ^= a[0])
                    .unwrap();
                let cancelled = stream.copy_out::<u8>(&a, 0..size).unwrap();
                cancelled.cancel();
                drop(stream.copy_out::<u8>(&b, 0..size).unwrap());
                let failing = fresh(size);
                let _ = stream.run(failing.write::<u8>(), |_| Err::<(), _>("planned"));
                let _ = stream.copy(&failing, 0, &b, 0, size);
                let view = a.view::<u8>();
                drop((a, b));
                assert!(view.is_err() || view.unwrap()[0] == 2);
                let _ = stream.synchronize();
            }
        }
        streams.iter().for_each(|stream| drop(stream.synchronize()));
        let stats = CPU.memory_stats().unwrap();
        assert_eq!((stats.live_bytes, stats.live_blocks), (0, 0), "{stats:?}");
        CPU.release_memory().unwrap();
        assert_eq!(CPU.memory_stats().unwrap().cached_bytes, 0);
    });
}

#[test]
fn promise_17_reused_memory_is_initialised_and_shows_nobodys_bytes_where_debug_assertions_are_on() {
    alone(AS_IT_IS, || {
        for nbytes in [64, 5000, 3 << 20] {
            let (stream, secret) = (stream(), holding(&vec![0x5E; nbytes]));
            let view = secret.view::<u8>().unwrap();
            drop(secret);
            // The view keeps the memory, so this is another block.
            let other = fresh(nbytes);
            stream.fill(&other, 0..nbytes, 0_u8).unwrap();
            stream.synchronize().unwrap();
            assert!(view.iter().all(|byte| *byte == 0x5E));
            drop(view);
            let before = CPU.memory_stats().unwrap();
            let next = fresh(nbytes);
            stream.fill(&next, 0..1, 1_u8).unwrap();
            let bytes = next.to_vec::<u8>().unwrap();
            assert_eq!(CPU.memory_stats().unwrap().reused, before.reused + 1);
            if cfg!(debug_assertions) {
                assert!(bytes[1..].iter().all(|byte| *byte == 0xD5));
            }
        }
    });
}

#[test]
fn promise_15_a_buffer_larger_than_memory_fails_its_writer_and_leaves_the_rest() {
    alone(AS_IT_IS, || {
        let stream = stream();
        let most = usize::try_from(CPU.total_memory()).unwrap();
        let (huge, small) = (fresh(most.saturating_mul(2)), fresh(64));
        stream.fill(&huge, 0..1, 0_u8).unwrap();
        stream.fill(&small, 0..64, 1_u8).unwrap();
        assert!(stream.synchronize().unwrap_err().is_out_of_memory());
        assert!(
            small.to_vec::<u8>().unwrap_err().is_out_of_memory(),
            "it was skipped"
        );
        stream.fill(&small, 0..64, 2_u8).unwrap();
        assert_eq!(small.to_vec::<u8>().unwrap(), [2; 64]);
        assert!(huge.to_vec::<u8>().unwrap_err().is_out_of_memory());
        drop((huge, small));
        assert_eq!(live_bytes(), 0);
        assert_eq!(Buffer::from_slice(CPU, &[1_u8]).unwrap().nbytes(), 1);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn promise_15_memory_that_the_system_refuses_is_an_error_and_counts_as_none() {
    alone(AS_IT_IS, || {
        let (stream, nbytes) = (stream(), 128 << 20);
        let large = fresh(nbytes);
        stream.fill(&large, 0..1, 0_u8).unwrap();
        stream.synchronize().unwrap();
        let another = fresh(nbytes);
        with_address_space(32 << 20, || {
            stream.fill(&another, 0..1, 0_u8).unwrap();
            assert!(stream.synchronize().unwrap_err().is_out_of_memory());
            assert_eq!(CPU.memory_stats().unwrap().live_blocks, 1);
            // What is given back is kept, and serves the next one.
            drop(large);
            stream.fill(&another, 0..nbytes, 5_u8).unwrap();
            stream.synchronize().unwrap();
        });
        assert_eq!(another.view::<u8>().unwrap()[nbytes - 1], 5);
        drop(another);
        assert_eq!(live_bytes(), 0);
    });
}
