//! Copies, fills, functions and kernels over buffers.

use clika_runtime::{Buffer, Device, Error, Stream};

use crate::process::{AS_IT_IS, alone};

const CPU: Device = Device::cpu();

#[test]
fn promise_4_conflicting_operations_on_two_streams_run_in_the_order_of_their_submission() {
    let (first, second) = (Stream::create(CPU).unwrap(), Stream::create(CPU).unwrap());
    let buffer = Buffer::new(CPU, 8 * 1000).unwrap();
    first.fill(&buffer, 0..8000, 0_u64).unwrap();
    for turn in 0..2000_u64 {
        let stream = if turn % 2 == 0 { &first } else { &second };
        stream
            .run(buffer.update::<u64>(), move |numbers| {
                assert!(numbers.iter().all(|number| *number == turn));
                numbers.fill(turn + 1);
            })
            .unwrap();
    }
    assert_eq!(buffer.to_vec::<u64>().unwrap(), vec![2000; 1000]);
    first.synchronize().unwrap();
    second.synchronize().unwrap();
}

#[test]
fn copies_go_between_host_and_buffers() {
    let stream = Stream::create(CPU).unwrap();
    let (a, b) = (
        Buffer::new(CPU, 10_000).unwrap(),
        Buffer::new(CPU, 10_000).unwrap(),
    );
    let data: Vec<u8> = (0..10_000).map(|n| (n % 251) as u8).collect();
    stream.copy_in(&data, &a, 0).unwrap();
    stream.copy(&a, 100, &b, 0, 9_900).unwrap();
    stream.copy(&b, 0, &b, 9_900, 100).unwrap();
    let out = stream
        .copy_out::<u8>(&b, 0..10_000)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(out[..9_900], data[100..]);
    assert_eq!(out[9_900..], data[100..200]);
    assert!(
        stream
            .copy_out::<u8>(&b, 0..0)
            .unwrap()
            .wait()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn promise_7_failed_data_stays_failed_until_it_is_overwritten() {
    // The default stream is one for the whole process.
    alone(AS_IT_IS, || {
        let (stream, other) = (Stream::create(CPU).unwrap(), Stream::create(CPU).unwrap());
        let buffer = Buffer::new(CPU, 64).unwrap();
        stream
            .run(buffer.write::<u8>(), |_| Err::<(), _>("no pixels"))
            .unwrap();
        assert!(stream.synchronize().unwrap_err().is_operation());
        let read = |stream: &Stream| stream.run(buffer.read::<u8>(), |_| ());
        read(&other).unwrap();
        let error = other.synchronize().unwrap_err();
        assert!(error.to_string().contains("no pixels"), "{error}");
        read(&other).unwrap();
        assert!(other.synchronize().is_err(), "acknowledging mends no data");
        other.fill(&buffer, 0..10, 0_u8).unwrap();
        assert!(other.synchronize().is_err(), "a partial write passes it on");
        let error: Error = buffer.to_vec::<u8>().unwrap_err();
        assert!(error.to_string().contains("no pixels"), "{error}");
        other.fill(&buffer, 0..64, 7_u8).unwrap();
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [7; 64]);
    });
}

#[test]
fn kernels_share_out_what_they_write() {
    let stream = Stream::create(CPU).unwrap();
    let x = Buffer::from_slice(CPU, &(0..100_000_u32).collect::<Vec<_>>()).unwrap();
    let y = Buffer::new(CPU, 2 * x.nbytes()).unwrap();
    stream
        .parallel_for(
            100_000,
            1000,
            (x.read::<u32>(), y.write::<u32>()),
            |range, (x, y)| {
                for (pair, i) in y.chunks_exact_mut(2).zip(range) {
                    pair.copy_from_slice(&[x[i], x[i] * 2]);
                }
            },
        )
        .unwrap();
    let y = y.to_vec::<u32>().unwrap();
    assert!((0..100_000).all(|i| y[2 * i] == i as u32 && y[2 * i + 1] == 2 * i as u32));
}

#[test]
fn promise_17_reading_what_nothing_wrote_is_an_invalid_argument() {
    let stream = Stream::create(CPU).unwrap();
    let (a, b) = (Buffer::new(CPU, 8).unwrap(), Buffer::new(CPU, 8).unwrap());
    let all = [
        stream.run(a.read::<u8>(), |_| ()),
        stream.run(a.update::<u8>(), |_| ()),
        stream.copy(&a, 0, &b, 0, 8),
        a.to_vec::<u8>().map(drop),
        a.view::<u8>().map(drop),
    ];
    for result in all {
        assert!(result.unwrap_err().is_invalid_argument());
    }
    assert_eq!(stream.pending(), 0);
}

#[test]
fn promise_4_a_view_refuses_writers_while_it_lives() {
    let stream = Stream::create(CPU).unwrap();
    let buffer = Buffer::from_slice(CPU, &[1_u8; 100]).unwrap();
    let view = buffer.view::<u8>().unwrap();
    assert!(
        stream
            .fill(&buffer, 0..1, 0_u8)
            .unwrap_err()
            .is_invalid_argument()
    );
    stream.run(buffer.read::<u8>(), |_| ()).unwrap();
    drop(view);
    let mut view = buffer.view_mut::<u8>().unwrap();
    view[3] = 9;
    assert!(
        stream
            .run(buffer.read::<u8>(), |_| ())
            .unwrap_err()
            .is_invalid_argument()
    );
    drop(view);
    assert_eq!(buffer.to_vec::<u8>().unwrap()[..5], [1, 1, 1, 9, 1]);
}

#[test]
fn promise_6_a_chain_of_temporaries_holds_few_blocks() {
    let stream = Stream::create(CPU).unwrap();
    let before = CPU.memory_stats().unwrap();
    let release = std::sync::Arc::new(std::sync::Barrier::new(2));
    let held = release.clone();
    stream
        .submit_host(move || {
            held.wait();
        })
        .unwrap();
    let mut last = Buffer::new(CPU, 1 << 20).unwrap();
    stream.fill(&last, 0..1 << 20, 1_u8).unwrap();
    for _ in 0..1000 {
        let next = Buffer::new(CPU, 1 << 20).unwrap();
        stream.copy(&last, 0, &next, 0, 1 << 20).unwrap();
        last = next;
    }
    release.wait();
    assert_eq!(last.to_vec::<u8>().unwrap(), vec![1; 1 << 20]);
    let after = CPU.memory_stats().unwrap();
    assert!(after.peak_bytes - before.live_bytes <= 4 << 20, "{after:?}");
}
