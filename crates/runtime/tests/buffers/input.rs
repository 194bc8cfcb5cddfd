//! Every size, offset and element: a documented value or a typed error.

use std::ops::Range;
use std::sync::Arc;

use clika_executor::sync::Mutex;
use clika_runtime::{Buffer, Error, Read, Stream};

use crate::process::{AS_IT_IS, alone};
use crate::{CPU, default_stream, fresh, holding, stream};

#[track_caller]
fn invalid<T>(outcome: Result<T, Error>) {
    match outcome {
        Ok(_) => panic!("it was taken"),
        Err(error) => assert!(error.is_invalid_argument(), "{error:?}"),
    }
}

/// A created stream and the default one.
fn both() -> [Stream; 2] {
    [stream(), default_stream()]
}

/// Ranges that lie in no buffer of `nbytes` bytes. Some of them end before they start.
fn outside(nbytes: usize) -> Vec<Range<usize>> {
    let most = usize::MAX;
    let pairs = [
        (0, nbytes + 1),
        (nbytes, nbytes + 1),
        (nbytes + 1, nbytes + 1),
        (0, most),
        (1, most),
        (most, most),
        (most - 1, most),
        (most, 0),
        (2, 1),
        (nbytes + 1, nbytes),
        (1 << 63, (1 << 63) + 1),
    ];
    pairs.map(|(start, end)| start..end).to_vec()
}

#[test]
fn promise_17_ranges_outside_a_buffer_are_invalid_arguments() {
    for stream in both() {
        for nbytes in [0, 1, 64, 100] {
            let buffer = holding(&vec![1; nbytes]);
            let host = vec![0; 8];
            for range in outside(nbytes) {
                invalid(stream.fill(&buffer, range.clone(), 0_u8));
                invalid(stream.fill(&buffer, range.clone(), 0_u64));
                invalid(stream.copy_out::<u8>(&buffer, range.clone()));
                invalid(stream.copy_out::<u64>(&buffer, range.clone()));
            }
            let most = usize::MAX;
            for offset in [nbytes + 1, most, most - 7, most - 8, 1 << 63] {
                invalid(stream.copy_in(&host, &buffer, offset));
                invalid(stream.copy_in(&[], &buffer, offset));
                invalid(stream.copy(&buffer, offset, &buffer, 0, 0));
                invalid(stream.copy(&buffer, 0, &buffer, offset, 0));
                invalid(stream.copy(&buffer, offset, &buffer, 0, most));
                invalid(stream.copy(&buffer, 0, &buffer, 0, offset));
            }
            assert_eq!(buffer.to_vec::<u8>().unwrap(), vec![1; nbytes]);
            stream.synchronize().unwrap();
        }
    }
}

#[test]
fn promise_17_sizes_that_cannot_be_are_errors() {
    // The default stream is one for the whole process.
    alone(AS_IT_IS, || {
        for nbytes in [usize::MAX, usize::MAX - 63, 1 << 63] {
            invalid(Buffer::new(CPU, nbytes));
        }
        // Those that cannot be had are noticed in stream order.
        for nbytes in [isize::MAX as usize, 1 << 62, (1 << 62) + 1, 1 << 50] {
            let huge = Buffer::new(CPU, nbytes).unwrap();
            assert_eq!(huge.nbytes(), nbytes);
            let stream = stream();
            stream.fill(&huge, 0..1, 7_u8).unwrap();
            assert!(stream.synchronize().unwrap_err().is_out_of_memory());
            stream.fill(&huge, 0..nbytes, 7_u8).unwrap();
            assert!(stream.synchronize().unwrap_err().is_out_of_memory());
            let error = stream.copy_out::<u8>(&huge, 0..1).unwrap().wait();
            assert!(error.unwrap_err().is_out_of_memory());
            stream.synchronize().unwrap();
            let error = default_stream().fill(&huge, 0..1, 7_u8).unwrap_err();
            assert!(error.is_out_of_memory(), "{error:?}");
            assert!(huge.view_mut::<u8>().unwrap_err().is_out_of_memory());
            default_stream().synchronize().unwrap();
        }
        for nbytes in [isize::MAX as usize, 1 << 62] {
            let unwritten = Buffer::new(CPU, nbytes).unwrap();
            assert!(unwritten.view_mut::<u8>().unwrap_err().is_out_of_memory());
            assert!(unwritten.view::<u8>().is_err());
        }
    });
}

#[test]
fn promise_17_overlapping_copies_are_invalid_arguments_and_touching_ones_are_not() {
    for stream in both() {
        let buffer = holding(&[1, 2, 3, 4, 5, 6, 7, 8]);
        for (from, to, length) in [(0, 0, 1), (0, 0, 8), (0, 3, 4), (3, 0, 4), (0, 1, 7)] {
            invalid(stream.copy(&buffer, from, &buffer.clone(), to, length));
        }
        stream.copy(&buffer, 0, &buffer, 4, 4).unwrap();
        stream.copy(&buffer, 7, &buffer, 0, 1).unwrap();
        stream.copy(&buffer, 3, &buffer, 3, 0).unwrap();
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [4, 2, 3, 4, 1, 2, 3, 4]);
    }
}

#[test]
fn promise_17_sizes_that_are_no_multiple_of_the_element_are_invalid_arguments() {
    for stream in both() {
        let buffer = holding(&[1, 0, 2, 0, 3, 0, 4]);
        invalid(stream.run(buffer.read::<u16>(), |_| ()));
        invalid(stream.run_host(buffer.write::<u64>(), |_| ()));
        invalid(stream.run((buffer.update::<[u8; 3]>(),), |_| ()));
        invalid(stream.run(vec![buffer.read::<u32>()], |_| ()));
        invalid(stream.parallel_for(1, 1, buffer.write::<u16>(), |_, _| ()));
        invalid(buffer.view::<u16>());
        invalid(buffer.view_mut::<[u8; 2]>());
        invalid(buffer.to_vec::<u16>());
        invalid(stream.copy_out::<u32>(&buffer, 0..6));
        invalid(stream.fill(&buffer, 0..7, 0_u16));
        invalid(stream.fill(&buffer, 0..7, 0_f32));
        // Where a range starts is anybody's choice.
        let odd = stream.copy_out::<u32>(&buffer, 2..6).unwrap();
        assert_eq!(odd.wait().unwrap(), [u32::from_ne_bytes([2, 0, 3, 0])]);
        let odd = stream.copy_out::<[u8; 3]>(&buffer, 1..7).unwrap();
        assert_eq!(odd.wait().unwrap(), [[0, 2, 0], [3, 0, 4]]);
        stream.fill(&buffer, 1..7, 0x0101_u16).unwrap();
        stream
            .run(buffer.read::<[u8; 7]>(), |all| assert_eq!(all, [[1; 7]]))
            .unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn promise_17_elements_without_a_size_are_as_many_as_bytes_and_hold_nothing() {
    for stream in both() {
        let buffer = holding(&[7; 100]);
        assert_eq!(buffer.to_vec::<()>().unwrap().len(), 100);
        assert_eq!(buffer.to_vec::<[u32; 0]>().unwrap().len(), 100);
        let out = stream.copy_out::<()>(&buffer, 1..3).unwrap();
        assert_eq!(out.wait().unwrap().len(), 2);
        stream
            .run(buffer.update::<()>(), |all| all.fill(()))
            .unwrap();
        assert_eq!(buffer.view::<()>().unwrap().len(), 100);
        assert_eq!(buffer.view_mut::<[u64; 0]>().unwrap().len(), 100);
        assert_eq!(Buffer::from_slice(CPU, &[(); 5]).unwrap().nbytes(), 0);
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [7; 100]);
    }
}

#[test]
fn promise_17_the_same_buffer_twice_is_an_invalid_argument_if_it_is_written() {
    for stream in both() {
        let (a, b) = (holding(&[1; 8]), holding(&[2; 8]));
        let same = a.clone();
        invalid(stream.run((a.read::<u8>(), same.write::<u8>()), |_| ()));
        invalid(stream.run((a.write::<u8>(), same.read::<u8>()), |_| ()));
        invalid(stream.run([a.update::<u8>(), same.update::<u8>()], |_| ()));
        invalid(stream.run(vec![a.write::<u8>(), b.write(), same.write()], |_| ()));
        invalid(stream.run((a.read::<u8>(), b.read::<u8>(), a.update::<u8>()), |_| ()));
        let three = (a.read::<u8>(), b.read::<u16>(), same.read::<u64>());
        let look = |(x, _, y): (&[u8], &[u16], &[u64])| {
            assert_eq!((x, y), (&[1_u8; 8][..], &[0x0101_0101_0101_0101][..]));
        };
        stream.run(three, look).unwrap();
        stream.synchronize().unwrap();
        // Nothing that was refused has left a trace.
        a.view_mut::<u8>().unwrap();
    }
}

#[test]
fn promise_17_operations_of_length_zero_touch_nothing() {
    for stream in both() {
        let (never, eight) = (fresh(8), holding(&[1; 8]));
        stream.fill(&never, 8..8, 1_u64).unwrap();
        stream.fill(&never, 0..0, 1_u8).unwrap();
        stream.copy_in(&[], &never, 8).unwrap();
        stream.copy(&never, 3, &eight, 8, 0).unwrap();
        stream.copy(&eight, 8, &never, 8, 0).unwrap();
        let none = stream.copy_out::<u32>(&never, 5..5).unwrap();
        assert!(none.wait().unwrap().is_empty());
        invalid(never.to_vec::<u8>());
        invalid(stream.run(never.read::<u8>(), |_| ()));
        let view = eight.view_mut::<u8>().unwrap();
        stream.fill(&eight, 2..2, 1_u8).unwrap();
        stream.synchronize().unwrap();
        drop(view);
        assert_eq!(eight.to_vec::<u8>().unwrap(), [1; 8]);
    }
}

#[test]
fn promise_7_a_buffer_of_no_size_has_nothing_that_could_fail() {
    let (stream, empty) = (stream(), fresh(0));
    let fail = |_: &mut [u8]| Err::<(), _>(std::io::Error::other("lost"));
    stream.run(empty.update::<u8>(), fail).unwrap();
    stream.synchronize().unwrap_err();
    stream.run(empty.update::<u8>(), |_| ()).unwrap();
    stream.synchronize().unwrap();
    assert!(empty.to_vec::<u8>().unwrap().is_empty());
}

#[test]
fn promise_17_buffers_of_no_size_are_written_and_read_as_any_other() {
    for stream in both() {
        let (a, b) = (fresh(0), holding(&[]));
        assert!(a.to_vec::<u64>().unwrap().is_empty());
        assert!(a.view::<u64>().unwrap().is_empty());
        let look = |(r, w, u): (&[u8], &mut [u64], &mut [f64])| {
            assert!(r.is_empty() && w.is_empty() && u.is_empty());
        };
        let none = fresh(0);
        stream
            .run((a.read(), b.write(), none.update()), look)
            .unwrap();
        stream.fill(&a, 0..0, 1_u64).unwrap();
        stream.copy(&a, 0, &b, 0, 0).unwrap();
        stream.copy_in(&[], &a, 0).unwrap();
        let calls = Arc::new(Mutex::new(vec![]));
        let noted = calls.clone();
        let kernel = move |range, all: &mut [u8]| {
            assert!(all.is_empty());
            noted.lock().push(range);
        };
        stream.parallel_for(3, 1, a.update::<u8>(), kernel).unwrap();
        stream.synchronize().unwrap();
        let mut calls = std::mem::take(&mut *calls.lock());
        calls.sort_by_key(|range: &Range<usize>| range.start);
        assert_eq!(calls, [0..1, 1..2, 2..3]);
        assert!(b.view_mut::<u16>().unwrap().is_empty());
    }
}

#[test]
fn an_operation_on_no_buffers_runs() {
    for stream in both() {
        stream
            .run(Vec::<Read<u8>>::new(), |none| assert!(none.is_empty()))
            .unwrap();
        stream.run([] as [Read<u8>; 0], |_| ()).unwrap();
        stream.synchronize().unwrap();
    }
}

/// The ranges that a kernel over `count` indices gets, in order.
fn ranges(stream: &Stream, count: usize, grain: usize) -> Vec<Range<usize>> {
    let ranges = Arc::new(Mutex::new(vec![]));
    let noted = ranges.clone();
    let none = holding(&[]);
    let kernel = move |range, _: &mut [u8]| noted.lock().push(range);
    stream
        .parallel_for(count, grain, none.update::<u8>(), kernel)
        .unwrap();
    stream.synchronize().unwrap();
    let mut ranges = std::mem::take(&mut *ranges.lock());
    ranges.sort_by_key(|range: &Range<usize>| range.start);
    ranges
}

fn kernels_cover_every_index_once() {
    for stream in both() {
        for (count, grain) in [
            (0, 0),
            (1, 0),
            (5, 0),
            (10, 3),
            (10, 10),
            (10, 11),
            (10, usize::MAX),
        ] {
            let ranges = ranges(&stream, count, grain);
            assert!(
                ranges.iter().all(|range| range.len() <= grain.max(1)),
                "{ranges:?}"
            );
            let covered: Vec<usize> = ranges.into_iter().flatten().collect();
            assert_eq!(covered, (0..count).collect::<Vec<_>>());
        }
        let half = usize::MAX / 2;
        let most = ranges(&stream, usize::MAX, half);
        assert_eq!(most, [0..half, half..2 * half, 2 * half..usize::MAX]);
        let most = ranges(&stream, usize::MAX, usize::MAX - 1);
        assert_eq!(most, [0..usize::MAX - 1, usize::MAX - 1..usize::MAX]);
    }
}

#[test]
fn promise_17_kernels_cover_every_index_once_whatever_the_count_and_the_grain() {
    kernels_cover_every_index_once();
}

#[test]
fn promise_17_kernels_cover_every_index_once_with_one_worker() {
    alone(&[("CLIKA_WORKERS", "1")], || {
        kernels_cover_every_index_once()
    });
}

#[test]
fn promise_17_kernels_over_what_cannot_be_shared_out_are_invalid_arguments() {
    for stream in both() {
        let (ten, other) = (holding(&[1; 10]), holding(&[2; 12]));
        for count in [3, 4, 20, 11, usize::MAX] {
            invalid(stream.parallel_for(count, 1, ten.write::<u8>(), |_, _| ()));
            invalid(stream.parallel_for(
                count,
                1,
                (other.read::<u8>(), ten.update::<u8>()),
                |_, _| (),
            ));
        }
        invalid(stream.parallel_for(10, 1, (ten.write::<u8>(), other.write::<u8>()), |_, _| ()));
        // What is read is not shared out.
        let kernel = |range: Range<usize>, (all, two): (&[u8], &mut [u8])| {
            assert_eq!((all.len(), two.len()), (10, 2 * range.len()));
        };
        stream
            .parallel_for(6, 4, (ten.read::<u8>(), other.update::<u8>()), kernel)
            .unwrap();
        stream
            .parallel_for(7, 2, ten.read::<u8>(), |_, all| assert_eq!(all.len(), 10))
            .unwrap();
        stream
            .parallel_for(0, 0, ten.update::<u8>(), |_, _| panic!("over nothing"))
            .unwrap();
        stream.synchronize().unwrap();
        assert_eq!(ten.to_vec::<u8>().unwrap(), [1; 10]);
        // Nothing wrote these, so they are unspecified: there are as many.
        let never = fresh(10);
        stream
            .parallel_for(0, 0, never.write::<u8>(), |_, _| ())
            .unwrap();
        assert_eq!(never.to_vec::<u8>().unwrap().len(), 10);
    }
}

#[test]
fn promise_17_patterns_have_one_two_four_or_eight_bytes() {
    for stream in both() {
        let buffer = holding(&[0; 48]);
        for length in [0, 3, 5, 6, 7, 9, 12, 16, 48] {
            invalid(stream.fill_bytes(&buffer, 0..48, &vec![1; length]));
            invalid(stream.fill_bytes(&buffer, 0..0, &vec![1; length]));
        }
        for length in [1, 2, 4, 8] {
            let pattern: Vec<u8> = (1..=length).collect();
            // Also at places that are no multiple of the pattern.
            stream.fill_bytes(&buffer, 3..43, &pattern).unwrap();
            let all = buffer.to_vec::<u8>().unwrap();
            assert!(
                all[3..43]
                    .chunks(length.into())
                    .all(|chunk| chunk == pattern)
            );
            assert_eq!((&all[..3], &all[43..]), (&[0; 3][..], &[0; 5][..]));
        }
        let nan = f32::from_bits(0x7fa0_0001);
        stream.fill(&buffer, 0..48, nan).unwrap();
        assert_eq!(buffer.to_vec::<u32>().unwrap(), [0x7fa0_0001; 12]);
        stream.fill(&buffer, 0..48, -0.0_f64).unwrap();
        assert_eq!(buffer.to_vec::<u64>().unwrap(), [1 << 63; 6]);
    }
}

#[test]
fn promise_17_reading_what_only_failed_or_zero_writes_wrote() {
    for stream in both() {
        let (never, target) = (fresh(16), fresh(16));
        invalid(stream.copy(&never, 0, &target, 0, 16));
        invalid(stream.copy(&never, 0, &never, 8, 8));
        invalid(stream.parallel_for(16, 1, never.update::<u8>(), |_, _| ()));
        invalid(stream.run((target.write::<u8>(), never.read::<u8>()), |_| ()));
        // What was refused wrote nothing.
        invalid(target.view::<u8>());
        // A part counts: the rest is unspecified.
        stream.fill(&never, 3..4, 9_u8).unwrap();
        assert_eq!(never.to_vec::<u8>().unwrap()[3], 9);
        target.view_mut::<u8>().unwrap().fill(5);
        assert_eq!(target.to_vec::<u8>().unwrap(), [5; 16]);
        stream.synchronize().unwrap();
    }
}

#[test]
fn promise_4_views_refuse_what_conflicts_as_long_as_they_live() {
    for stream in both() {
        let (a, b) = (holding(&[1; 32]), holding(&[2; 32]));
        let (one, two) = (a.view::<u8>().unwrap(), a.view::<u64>().unwrap());
        let writes = || {
            [
                stream.fill(&a, 0..1, 0_u8),
                stream.copy_in(&[0], &a, 31),
                stream.copy(&b, 0, &a, 0, 32),
                stream.copy(&a, 0, &a, 16, 16),
                stream.run(a.write::<u8>(), |_| ()),
                stream.run_host((b.read::<u8>(), a.update::<u8>()), |_| ()),
                stream.parallel_for(32, 1, a.update::<u8>(), |_, _| ()),
                a.view_mut::<u8>().map(drop),
            ]
        };
        writes().into_iter().for_each(invalid);
        drop(one);
        writes().into_iter().for_each(invalid);
        stream.copy(&a, 0, &b, 0, 32).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(*two, [0x0101_0101_0101_0101; 4]);
        drop(two);
        for outcome in writes() {
            outcome.unwrap();
        }
        let view = b.view_mut::<u8>().unwrap();
        invalid(stream.copy(&b, 0, &a, 0, 32));
        invalid(stream.copy_out::<u8>(&b, 0..1));
        invalid(stream.run(b.read::<u8>(), |_| ()));
        invalid(b.view::<u8>());
        invalid(b.to_vec::<u8>());
        // A view keeps the bytes, whoever else lets go of them.
        drop(b);
        assert_eq!(*view, [1; 32]);
        stream.synchronize().unwrap();
    }
}
