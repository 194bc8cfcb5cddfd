//! What waits for what, and what does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use clika_runtime::{Buffer, Error, Stream};

use crate::gate::Gate;
use crate::process::{AS_IT_IS, alone};
use crate::waiting::until;
use crate::watchdog::watch;
use crate::{CPU, default_stream, fresh, holding, live_bytes, stream};

#[test]
fn promise_4_readers_of_one_buffer_are_inside_at_once() {
    let _watchdog = watch();
    const READERS: usize = 8;
    let (writer, buffer) = (stream(), fresh(1000));
    let gate = Gate::on(&writer);
    writer.fill(&buffer, 0..1000, 3_u8).unwrap();
    // Nobody leaves before all are inside.
    let inside = Arc::new(Barrier::new(READERS));
    let streams: Vec<Stream> = (0..READERS).map(|_| stream()).collect();
    for stream in &streams {
        let inside = inside.clone();
        let read = move |bytes: &[u8]| {
            inside.wait();
            assert_eq!(bytes, [3; 1000]);
            inside.wait();
        };
        stream.run_host(buffer.read::<u8>(), read).unwrap();
    }
    gate.open();
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn promise_4_readers_before_a_writer_and_readers_behind_it_see_each_their_own() {
    let _watchdog = watch();
    let (before, writer, after) = (stream(), stream(), stream());
    let (buffer, other) = (holding(&[1; 5000]), fresh(5000));
    let gate = Gate::begun_on(&before);
    before.copy(&buffer, 0, &other, 0, 5000).unwrap();
    writer.fill(&buffer, 0..5000, 2_u8).unwrap();
    let behind = after.copy_out::<u8>(&buffer, 0..5000).unwrap();
    assert!(!behind.is_done() && writer.pending() > 0);
    gate.open();
    assert_eq!(behind.wait().unwrap(), [2; 5000]);
    assert_eq!(other.to_vec::<u8>().unwrap(), [1; 5000]);
}

#[test]
fn promise_4_a_writer_waits_for_every_reader() {
    let _watchdog = watch();
    // Whichever reader is the last to end.
    for last in [0, 3, 7, 8, 19] {
        a_writer_waits_for_every_reader(last);
    }
}

/// Twenty streams read twice each; all but the second read of `last` end at once.
fn a_writer_waits_for_every_reader(last: usize) {
    let (buffer, writer) = (holding(&[1; 64]), stream());
    let written = Arc::new(AtomicBool::new(false));
    let streams: Vec<Stream> = (0..20).map(|_| stream()).collect();
    let (end, ended) = mpsc::channel::<()>();
    let mut ended = Some(ended);
    for turn in 0..2 {
        for (n, stream) in streams.iter().enumerate() {
            let wait = ended.take_if(|_| (n, turn) == (last, 1));
            let written = written.clone();
            let read = move |bytes: &[u8]| {
                let _ = wait.map(|wait| wait.recv());
                assert!(!written.load(Ordering::SeqCst) && bytes == [1; 64]);
            };
            stream.run_host(buffer.read::<u8>(), read).unwrap();
        }
    }
    let flag = written.clone();
    let write = move |bytes: &mut [u8]| {
        flag.store(true, Ordering::SeqCst);
        bytes.fill(2);
    };
    writer.run(buffer.write::<u8>(), write).unwrap();
    for (n, stream) in streams.iter().enumerate() {
        if n != last {
            stream.synchronize().unwrap();
        }
    }
    assert!(!written.load(Ordering::SeqCst));
    drop(end);
    assert_eq!(buffer.to_vec::<u8>().unwrap(), [2; 64]);
    streams[last].synchronize().unwrap();
}

#[test]
fn promise_4_a_kernel_and_a_large_copy_are_seen_whole_by_the_next_reader() {
    let _watchdog = watch();
    let streams = [stream(), stream(), stream()];
    let (a, b) = (fresh(8 * 10_000), fresh(8 * 10_000));
    for turn in 0..100_u64 {
        let fill = move |_, words: &mut [u64]| words.fill(turn);
        streams[0]
            .parallel_for(10_000, 500, a.write::<u64>(), fill)
            .unwrap();
        streams[1].copy(&a, 0, &b, 0, a.nbytes()).unwrap();
        let look = move |words: &[u64]| assert!(words.iter().all(|word| *word == turn));
        streams[2].run(b.read::<u64>(), look).unwrap();
    }
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn promise_4_streams_without_a_buffer_in_common_do_not_wait_for_each_other() {
    let _watchdog = watch();
    let (held, free) = (stream(), stream());
    let (a, b) = (holding(&[1; 8]), holding(&[2; 8]));
    let gate = Gate::begun_on(&held);
    held.fill(&a, 0..8, 0_u8).unwrap();
    free.fill(&b, 0..8, 7_u8).unwrap();
    free.synchronize().unwrap();
    assert_eq!(b.to_vec::<u8>().unwrap(), [7; 8]);
    assert_eq!(held.pending(), 2);
    gate.open();
    held.synchronize().unwrap();
}

#[test]
fn promise_5_events_cover_work_on_buffers() {
    let _watchdog = watch();
    let (first, second) = (stream(), stream());
    let buffer = fresh(5000);
    let gate = Gate::begun_on(&first);
    first.fill(&buffer, 0..5000, 1_u8).unwrap();
    let event = first.record_event();
    first.fill(&buffer, 0..5000, 2_u8).unwrap();
    let seen = Arc::new(AtomicBool::new(false));
    let flag = seen.clone();
    second.wait_event(&event).unwrap();
    second
        .submit(move || flag.store(true, Ordering::SeqCst))
        .unwrap();
    assert!(!event.query() && !seen.load(Ordering::SeqCst));
    gate.open();
    event.synchronize().unwrap();
    second.synchronize().unwrap();
    assert!(seen.load(Ordering::SeqCst));
    // An event behind an operation that waits for data covers that wait.
    let gate = Gate::begun_on(&first);
    first.fill(&buffer, 0..5000, 3_u8).unwrap();
    let out = second.copy_out::<u8>(&buffer, 0..5000).unwrap();
    let event = second.record_event();
    assert!(!event.query());
    assert!(
        event
            .synchronize_timeout(Duration::ZERO)
            .unwrap_err()
            .is_timeout()
    );
    gate.open();
    event.synchronize().unwrap();
    assert!(out.is_done());
    assert_eq!(out.wait().unwrap(), [3; 5000]);
}

#[test]
fn promise_3_the_default_stream_waits_for_what_its_operation_depends_on() {
    let _watchdog = watch();
    let (created, default, buffer) = (stream(), default_stream(), fresh(64));
    for round in 0..50_u8 {
        let gate = Gate::on(&created);
        created.fill(&buffer, 0..64, round).unwrap();
        let opened = Arc::new(AtomicBool::new(false));
        let flag = opened.clone();
        thread::scope(|scope| {
            let here = scope.spawn(|| {
                let caller = thread::current().id();
                let look = move |bytes: &mut [u8]| {
                    assert!(
                        flag.load(Ordering::SeqCst),
                        "it ran before what it depends on"
                    );
                    assert_eq!(thread::current().id(), caller);
                    assert!(bytes.iter().all(|byte| *byte == round));
                    bytes.fill(round + 100);
                };
                default.run(buffer.update::<u8>(), look).unwrap();
            });
            thread::yield_now();
            opened.store(true, Ordering::SeqCst);
            gate.open();
            here.join().unwrap();
        });
        // It has run when the call returned, and the next of the created stream comes after it.
        let after = created.copy_out::<u8>(&buffer, 0..64).unwrap();
        assert_eq!(after.wait().unwrap(), [round + 100; 64]);
    }
}

#[test]
fn promise_3_work_inside_the_default_streams_work_is_part_of_it() {
    let _watchdog = watch();
    let (default, other) = (default_stream(), stream());
    let (a, b) = (holding(&[1; 64]), fresh(64));
    let gate = Gate::on(&other);
    other.fill(&a, 0..64, 5_u8).unwrap();
    let (inner, x, y) = (default.clone(), a.clone(), b.clone());
    let nested = move || {
        // This waits for the other stream, and has run on return.
        inner.copy(&x, 0, &y, 0, 64).unwrap();
        assert_eq!(y.to_vec::<u8>().unwrap(), [5; 64]);
        assert_eq!(*y.view::<u8>().unwrap(), [5; 64]);
        inner.run(y.update::<u8>(), |bytes| bytes.fill(6)).unwrap();
        y.view_mut::<u8>().unwrap()[0] = 6;
    };
    thread::scope(|scope| {
        let running = scope.spawn(|| default.submit(nested).unwrap());
        gate.open();
        running.join().unwrap();
    });
    assert_eq!(
        other.copy_out::<u8>(&b, 0..64).unwrap().wait().unwrap(),
        [6; 64]
    );
    default.synchronize().unwrap();
}

#[test]
fn promise_7_nested_work_that_is_skipped_leaves_its_failure() {
    // The default stream is one for the whole process.
    alone(AS_IT_IS, || {
        let (default, a, b) = (default_stream(), holding(&[1; 8]), fresh(8));
        let (inner, x, y) = (default.clone(), a.clone(), b.clone());
        let nested = move || {
            drop(inner.call(|| panic!("the first to fail")).unwrap());
            assert!(inner.fill(&x, 0..8, 2_u8).unwrap_err().is_cancelled());
            assert!(inner.fill(&y, 0..4, 2_u8).unwrap_err().is_cancelled());
        };
        let failed = |outcome: Result<Vec<u8>, Error>| {
            let error = outcome.unwrap_err();
            assert!(
                error.is_operation() && error.to_string().contains("the first to fail"),
                "{error:?}"
            );
        };
        assert!(default.submit(nested).unwrap_err().is_operation());
        let _ = default.synchronize();
        failed(a.to_vec());
        failed(b.to_vec());
        default.fill(&a, 0..8, 3_u8).unwrap();
        assert_eq!(a.to_vec::<u8>().unwrap(), [3; 8]);
    });
}

#[test]
fn promise_7_a_copy_of_failed_data_fails_by_its_own_result() {
    // The default stream is one for the whole process.
    alone(AS_IT_IS, || {
        let (source, reader, buffer) = (stream(), stream(), fresh(8));
        source
            .run(buffer.write::<u8>(), |_| Err::<(), _>("no pixels"))
            .unwrap();
        for stream in [&reader, &default_stream()] {
            let future = stream.copy_out::<u8>(&buffer, 0..8).unwrap();
            let error = future.wait().unwrap_err();
            assert!(
                error.is_operation() && error.to_string().contains("no pixels"),
                "{error:?}"
            );
            // By that it is acknowledged.
            stream.synchronize().unwrap();
        }
        assert!(source.synchronize().unwrap_err().is_operation());
    });
}

#[test]
fn promise_10_a_cancelled_copy_of_failed_data_fails_nothing() {
    let _watchdog = watch();
    let (source, reader, buffer) = (stream(), stream(), fresh(8));
    source
        .run(buffer.write::<u8>(), |_| Err::<(), _>("no pixels"))
        .unwrap();
    let gate = Gate::begun_on(&reader);
    let future = reader.copy_out::<u8>(&buffer, 0..8).unwrap();
    assert!(future.cancel());
    gate.open();
    reader.synchronize().unwrap();
    assert!(future.wait().unwrap_err().is_cancelled());
    assert!(source.synchronize().unwrap_err().is_operation());
}

/// A wait for what a buffer holds.
type Wait = fn(&Buffer) -> Result<(), Error>;

/// What `wait` returns inside an operation of another stream that has `buffer` as an argument.
fn inside(
    buffer: &Buffer,
    wait: impl FnOnce(&Buffer) -> Result<(), Error> + Send + 'static,
) -> Error {
    let (stream, same) = (stream(), buffer.clone());
    let (tell, told) = mpsc::channel();
    let work = move |_: &mut [u8]| tell.send(wait(&same)).unwrap();
    stream.run_host(buffer.update::<u8>(), work).unwrap();
    let outcome = told.recv().unwrap();
    stream.synchronize().unwrap();
    outcome.unwrap_err()
}

#[test]
fn promise_9_waits_inside_an_operation_for_its_own_bytes_are_deadlocks() {
    let _watchdog = watch();
    let buffer = holding(&[1; 64]);
    let all: [Wait; 6] = [
        |buffer| buffer.view::<u8>().map(drop),
        |buffer| buffer.view_mut::<u8>().map(drop),
        |buffer| buffer.to_vec::<u8>().map(drop),
        |buffer| default_stream().fill(buffer, 0..64, 0_u8),
        |buffer| default_stream().run(buffer.read::<u8>(), |_| ()),
        // Through another stream, which waits for this operation.
        |buffer| {
            let other = stream();
            let out = other.copy_out::<u8>(buffer, 0..64)?;
            let error = out.wait().map(drop);
            assert!(other.synchronize().unwrap_err().is_deadlock());
            error
        },
    ];
    for wait in all {
        let error = inside(&buffer, wait);
        assert!(error.is_deadlock(), "{error:?}");
    }
    // Nothing is left of what was refused.
    assert_eq!(buffer.to_vec::<u8>().unwrap(), [1; 64]);
    buffer.view_mut::<u8>().unwrap().fill(2);
    default_stream().synchronize().unwrap();
}

#[test]
fn promise_9_a_nested_wait_for_what_waits_for_the_enclosing_work_is_a_deadlock() {
    let _watchdog = watch();
    let (default, other) = (default_stream(), stream());
    let (a, b) = (holding(&[1; 8]), fresh(8));
    let (inner, source, target) = (default.clone(), a.clone(), b.clone());
    let work = move |_: &mut [u8]| {
        // The copy waits for this operation, and the fill would wait for the copy.
        other.copy(&source, 0, &target, 0, 8).unwrap();
        let error = inner.fill(&target, 0..8, 1_u8).unwrap_err();
        assert!(error.is_deadlock(), "{error:?}");
    };
    default.run(a.update::<u8>(), work).unwrap();
    let same = a.clone();
    // What the operation itself is at, it has as a slice.
    let work = move |_: &mut [u8]| {
        assert!(same.view::<u8>().unwrap_err().is_invalid_argument());
        assert!(same.view_mut::<u8>().unwrap_err().is_invalid_argument());
    };
    default.run(a.update::<u8>(), work).unwrap();
    assert_eq!(b.to_vec::<u8>().unwrap(), [1; 8]);
    default.synchronize().unwrap();
}

#[test]
fn promise_6_buffers_that_pending_work_uses_live_until_it_ran() {
    alone(AS_IT_IS, || {
        let stream = stream();
        let gate = Gate::begun_on(&stream);
        let data: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let (a, b) = (holding(&data), fresh(100_000));
        stream.copy(&a, 0, &b, 0, 100_000).unwrap();
        let out = stream.copy_out::<u8>(&b, 0..100_000).unwrap();
        drop((a, b));
        assert!(live_bytes() >= 100_000);
        gate.open();
        assert_eq!(out.wait().unwrap(), data);
        // Also before anybody waits for more than that: it is let go before it counts as done.
        assert_eq!(live_bytes(), 0);
        // Without a future and without a stream.
        let gate = Gate::begun_on(&stream);
        let c = holding(&data);
        let ran = Arc::new(AtomicU64::new(0));
        let count = ran.clone();
        let work = move |bytes: &mut [u8]| {
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            count.store(sum, Ordering::SeqCst);
        };
        stream.run(c.update::<u8>(), work).unwrap();
        drop((c, stream));
        gate.open();
        until(|| live_bytes() == 0);
        assert_eq!(
            ran.load(Ordering::SeqCst),
            data.iter().map(|byte| u64::from(*byte)).sum::<u64>()
        );
    });
}

#[test]
fn promise_4_a_copied_source_has_been_read_when_the_call_returns() {
    let _watchdog = watch();
    let stream = stream();
    for nbytes in [1, 31, 32, 33, 4096, 5000, 3 << 20] {
        let buffer = fresh(nbytes);
        let gate = Gate::begun_on(&stream);
        let mut data = vec![1_u8; nbytes];
        stream.copy_in(&data, &buffer, 0).unwrap();
        data.fill(2);
        drop(data);
        gate.open();
        assert_eq!(buffer.to_vec::<u8>().unwrap(), vec![1; nbytes]);
    }
}

#[cfg(unix)]
mod fork {
    use super::*;
    use crate::child::{in_child, refused};

    fn every_use_is_refused(inherited: &Buffer, on: &Stream) {
        let own = holding(&[1; 8]);
        refused(on.fill(inherited, 0..8, 0_u8));
        refused(on.fill(inherited, 0..1, 0_u8));
        refused(on.copy_in(&[1; 8], inherited, 0));
        refused(on.copy(inherited, 0, &own, 0, 8));
        refused(on.copy(&own, 0, inherited, 0, 8));
        refused(on.copy_out::<u8>(inherited, 0..8));
        refused(on.run(inherited.read::<u8>(), |_| ()));
        refused(on.run_host((own.write::<u8>(), inherited.update::<u8>()), |_| ()));
        refused(on.parallel_for(8, 1, inherited.write::<u8>(), |_, _| ()));
        refused(inherited.view::<u8>());
        refused(inherited.view_mut::<u8>());
        refused(inherited.to_vec::<u8>());
        assert_eq!(inherited.nbytes(), 8);
        let _ = format!("{inherited:?}");
    }

    #[test]
    fn promise_13_a_child_is_refused_inherited_buffers_and_has_its_own() {
        alone(AS_IT_IS, || {
            let (stream, reached, pending) = (stream(), holding(&[4; 8]), fresh(8));
            let viewed = holding(&[5; 8]);
            let view = viewed.view::<u8>().unwrap();
            let gate = Gate::begun_on(&stream);
            stream.fill(&pending, 0..8, 6_u8).unwrap();
            let mut handles = Some((reached.clone(), pending.clone(), viewed, view));
            in_child(|| {
                let (reached, pending, viewed, view) = handles.take().unwrap();
                for on in [crate::stream(), default_stream()] {
                    every_use_is_refused(&reached, &on);
                    every_use_is_refused(&pending, &on);
                    every_use_is_refused(&viewed, &on);
                    // The bytes are a copy of the parent's.
                    assert_eq!(*view, [5; 8]);
                }
                drop((reached, pending, viewed, view));
                assert_eq!(live_bytes(), 0);
                let own = fresh(1 << 20);
                crate::stream().fill(&own, 0..1 << 20, 9_u8).unwrap();
                assert_eq!(own.to_vec::<u8>().unwrap(), vec![9; 1 << 20]);
                drop(own);
                CPU.release_memory().unwrap();
            });
            gate.open();
            let (reached, pending, viewed, view) = handles.unwrap();
            assert_eq!(*view, [5; 8]);
            drop(view);
            viewed.view_mut::<u8>().unwrap();
            assert_eq!(reached.to_vec::<u8>().unwrap(), [4; 8]);
            assert_eq!(pending.to_vec::<u8>().unwrap(), [6; 8]);
        });
    }

    #[test]
    fn promise_13_forks_while_threads_use_buffers_harm_nobody() {
        alone(AS_IT_IS, || {
            let (streams, stop) = ([stream(), stream()], AtomicBool::new(false));
            let buffers = [holding(&[0; 8]), holding(&[0; 8])];
            let counts: u64 = thread::scope(|scope| {
                let hammer = |n: usize| {
                    let (streams, stop, buffers) = (&streams, &stop, &buffers);
                    scope.spawn(move || {
                        let mut count = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let add = |both: [&mut [u64]; 2]| {
                                both.into_iter().for_each(|word| word[0] += 1)
                            };
                            let accesses = [buffers[n].update(), buffers[1 - n].update()];
                            streams[n].run(accesses, add).unwrap();
                            count += 1;
                            if count % 64 == 0 {
                                streams[n].synchronize().unwrap();
                            }
                        }
                        count
                    })
                };
                let threads = [hammer(0), hammer(1)];
                for _ in 0..50 {
                    in_child(|| {
                        let own = crate::stream();
                        every_use_is_refused(&buffers[0], &own);
                        drop(buffers[1].clone());
                        let mine = holding(&[3; 8]);
                        own.fill(&mine, 0..4, 1_u8).unwrap();
                        assert_eq!(mine.to_vec::<u8>().unwrap(), [1, 1, 1, 1, 3, 3, 3, 3]);
                    });
                }
                stop.store(true, Ordering::Relaxed);
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .sum()
            });
            for buffer in &buffers {
                assert_eq!(buffer.to_vec::<u64>().unwrap(), [counts]);
            }
        });
    }
}

mod direct {
    use std::mem::size_of_val;

    use clika_runtime::foreign::{self, Arguments, Site, Transfer, ViewRequest};

    use super::*;

    /// Runs `body` inside work on the default stream that has `buffer` as an argument.
    fn inside(buffer: &Buffer, body: impl FnOnce(&Buffer) + Send + 'static) {
        let (stream, buffer) = (default_stream(), buffer.clone());
        let work = {
            let stream = stream.clone();
            move || {
                let strand = foreign::strand(&stream);
                let n = strand.inside().unwrap();
                let using = Arguments::new([&buffer])
                    .begin(strand, n, Site::Unknown)
                    .unwrap();
                body(&buffer);
                using
                    .end(Ok(()), || unreachable!("it did not fail"))
                    .unwrap();
            }
        };
        stream.submit(work).unwrap();
    }

    #[test]
    fn promise_04_a_function_with_the_buffer_has_any_number_of_views_but_no_slices() {
        let _watchdog = watch();
        alone(AS_IT_IS, || {
            let buffer = holding(&[1; 8]);
            inside(&buffer, |buffer| {
                let views = [true, true, false].map(|writable| {
                    let mut request = ViewRequest::new(buffer, writable).unwrap();
                    assert!(request.positions().is_empty());
                    request.attempt().ok().flatten().unwrap()
                });
                assert!(views.iter().all(|view| view.start() == views[0].start()));
                // Slices of the same bytes would alias.
                assert!(buffer.view_mut::<u8>().unwrap_err().is_invalid_argument());
                drop(views);
                assert!(buffer.view_mut::<u8>().unwrap_err().is_invalid_argument());
                assert!(buffer.view::<u8>().unwrap_err().is_invalid_argument());
            });
            assert_eq!(buffer.to_vec::<u8>().unwrap(), [1; 8]);
        });
    }

    #[test]
    fn promise_15_a_function_that_finds_no_memory_does_not_have_the_buffer() {
        let _watchdog = watch();
        alone(AS_IT_IS, || {
            let (stream, buffer) = (default_stream(), fresh(1 << 50));
            let work = {
                let (stream, buffer) = (stream.clone(), buffer.clone());
                move || {
                    let strand = foreign::strand(&stream);
                    let n = strand.inside().unwrap();
                    assert!(
                        Arguments::new([&buffer])
                            .begin(strand, n, Site::Unknown)
                            .is_err()
                    );
                    let fill = Transfer::fill(&buffer, 0..1, &[0]).unwrap();
                    assert!(!fill.is_direct());
                }
            };
            stream.submit(work).unwrap();
        });
    }

    #[test]
    fn promise_17_a_transfer_of_nothing_inside_a_function_does_nothing() {
        let _watchdog = watch();
        alone(AS_IT_IS, || {
            let buffer = holding(&[1; 8]);
            inside(&buffer, |buffer| {
                let nothing = Transfer::fill(buffer, 3..3, &[0]).unwrap();
                assert!(!nothing.is_direct());
                assert!(matches!(nothing.aside(1).unwrap().attempt(), Ok(true)));
                let all = Transfer::fill(buffer, 0..8, &[2]).unwrap();
                assert!(all.is_direct());
                assert!(matches!(all.aside(1).unwrap().attempt(), Ok(true)));
            });
            assert_eq!(buffer.to_vec::<u8>().unwrap(), [2; 8]);
        });
    }

    #[test]
    fn promise_17_parts_of_elements_without_a_size_are_aligned() {
        let _watchdog = watch();
        let (stream, buffer) = (stream(), holding(&[0; 24]));
        stream
            .parallel_for(24, 5, buffer.update::<[u64; 0]>(), |range, part| {
                assert_eq!(part.len(), range.len());
                assert_eq!(size_of_val(part), 0);
                assert!(part.as_ptr().is_aligned());
            })
            .unwrap();
        stream.synchronize().unwrap();
    }
}

/// Functions at buffers that they were not given.
mod aside {
    use std::sync::mpsc;

    use clika_runtime::foreign::{Missing, number_function};
    use clika_runtime::foreign::{Transfer, current_function, enter_function, leave_function};

    use super::*;

    /// What `body` returns as a function of the host lane, which runs once `behind` has submitted what
    /// comes after it.
    fn with_later_work<T: Send + 'static>(
        stream: &Stream,
        body: impl FnOnce() -> T + Send + 'static,
        behind: impl FnOnce(),
    ) -> T {
        let gate = Gate::on(stream);
        let future = stream.call_host(body).unwrap();
        behind();
        gate.open();
        future.wait().unwrap()
    }

    /// Makes `other` wait for all that was submitted to `stream`, and then write to `buffer`.
    fn write_behind(stream: &Stream, other: &Stream, buffer: &Buffer) {
        other.wait_stream(stream).unwrap();
        other.fill(buffer, 0..8, 9_u8).unwrap();
    }

    #[test]
    fn promise_4_a_function_sees_what_was_before_it_and_waits_for_nothing_behind_it() {
        let _watchdog = watch();
        let (stream, other, buffer) = (stream(), stream(), holding(&[1; 8]));
        let inner = buffer.clone();
        let body = move || {
            let view = inner.view::<u8>().unwrap();
            let copy = inner.to_vec::<u16>().unwrap();
            // Not even while the view is there, which is a copy: the later write goes its way.
            (view.to_vec(), copy)
        };
        let seen = with_later_work(&stream, body, || write_behind(&stream, &other, &buffer));
        assert_eq!(seen, (vec![1; 8], vec![0x0101; 4]));
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [9; 8]);
    }

    #[test]
    fn promise_4_a_view_of_what_is_written_behind_is_a_copy_that_still_refuses_writes() {
        let _watchdog = watch();
        let (stream, other, buffer) = (stream(), stream(), holding(&[1; 8]));
        let inner = buffer.clone();
        let body = move || {
            assert!(inner.view_mut::<u8>().unwrap_err().is_invalid_argument());
            inner.view::<u8>().unwrap()
        };
        let view = with_later_work(&stream, body, || write_behind(&stream, &other, &buffer));
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [9; 8]);
        assert_eq!(*view, [1; 8]);
        let refused = other.fill(&buffer, 0..8, 2_u8).unwrap_err();
        assert!(refused.is_invalid_argument());
        drop(view);
        other.fill(&buffer, 0..8, 2_u8).unwrap();
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [2; 8]);
    }

    #[test]
    fn promise_4_a_function_with_nothing_behind_it_views_the_bytes_themselves() {
        let _watchdog = watch();
        let (stream, buffer) = (stream(), holding(&[1; 8]));
        let inner = buffer.clone();
        let change = move || inner.view_mut::<u8>().unwrap().fill(3);
        stream.submit_host(change).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(*buffer.view::<u8>().unwrap(), [3; 8]);
    }

    #[test]
    fn promise_4_a_function_waits_for_a_read_before_it_that_a_later_write_has_overtaken() {
        let _watchdog = watch();
        let (stream, reader, writer) = (stream(), stream(), stream());
        let buffer = holding(&[1; 8]);
        let gate = Gate::begun_on(&reader);
        let read = reader.copy_out::<u8>(&buffer, 0..8).unwrap();
        let inner = buffer.clone();
        let number = number_function();
        writer.fill(&buffer, 0..8, 9_u8).unwrap();
        // As the function that got its number between the read and the write.
        let before = enter_function(number);
        assert_eq!(current_function(), Some(number));
        let fill = Transfer::fill(&inner, 0..8, &[2]).unwrap();
        let mut aside = fill.aside(number).unwrap();
        leave_function(before);
        let awaited: Vec<_> = aside.positions().cloned().collect();
        assert_eq!(awaited.len(), 1);
        gate.open();
        assert_eq!(read.wait().unwrap(), [1; 8]);
        writer.synchronize().unwrap();
        assert!(awaited[0].is_reached() && matches!(aside.attempt(), Ok(true)));
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [2; 8]);
        stream.synchronize().unwrap();
    }

    #[test]
    fn promise_4_a_function_waits_for_who_is_at_the_bytes() {
        let _watchdog = watch();
        let (stream, buffer) = (stream(), holding(&[1; 8]));
        let number = number_function();
        let ((begin, begun), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
        let work = move |bytes: &mut [u8]| {
            begin.send(()).unwrap();
            let _ = opened.recv();
            bytes.fill(2);
        };
        stream.run_host(buffer.update::<u8>(), work).unwrap();
        begun.recv().unwrap();
        // Nothing was before the function, and the writer has begun.
        let mut aside = Transfer::fill(&buffer, 0..4, &[3])
            .unwrap()
            .aside(number)
            .unwrap();
        assert_eq!(aside.positions().count(), 0);
        assert!(matches!(aside.attempt(), Ok(false)));
        assert_eq!(aside.positions().count(), 1);
        drop(open);
        stream.synchronize().unwrap();
        assert!(matches!(aside.attempt(), Ok(true)));
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [3, 3, 3, 3, 2, 2, 2, 2]);
    }

    #[test]
    fn promise_7_a_function_meets_failed_data_and_mends_it_by_overwriting_all() {
        let _watchdog = watch();
        let (stream, buffer) = (stream(), holding(&[1; 8]));
        let fail = |_: &mut [u8]| Err::<(), _>(std::io::Error::other("lost"));
        stream.run(buffer.update::<u8>(), fail).unwrap();
        stream.synchronize().unwrap_err();
        let number = number_function();
        let attempt = |range| {
            let fill = Transfer::fill(&buffer, range, &[3]).unwrap();
            fill.aside(number).unwrap().attempt()
        };
        assert!(matches!(attempt(0..4), Err(Missing::Failed(_))));
        assert!(matches!(attempt(0..8), Ok(true)));
        assert_eq!(buffer.to_vec::<u8>().unwrap(), [3; 8]);
    }

    #[test]
    fn promise_4_copies_in_both_directions_at_once_do_not_lock_each_other_out() {
        let _watchdog = watch();
        let (a, b) = (holding(&[1; 8]), holding(&[2; 8]));
        std::thread::scope(|scope| {
            for (from, to) in [(&a, &b), (&b, &a)] {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        let copy = Transfer::copy(from, 0, to, 0, 8).unwrap();
                        assert!(matches!(copy.aside(1).unwrap().attempt(), Ok(true)));
                    }
                });
            }
        });
        assert_eq!(a.to_vec::<u8>().unwrap(), b.to_vec::<u8>().unwrap());
    }

    #[test]
    fn promise_9_a_function_that_is_at_the_bytes_itself_is_told() {
        let _watchdog = watch();
        alone(AS_IT_IS, || {
            let (stream, buffer) = (stream(), holding(&[1; 8]));
            let inner = buffer.clone();
            let nested = stream.call_host(move || {
                let same = inner.clone();
                let work = move |_: &mut [u8]| same.to_vec::<u8>().map(drop);
                default_stream().run(inner.update::<u8>(), work)
            });
            let error = nested.unwrap().wait().unwrap().unwrap_err();
            assert!(error.to_string().contains("still in use"), "{error}");
            assert!(buffer.to_vec::<u8>().is_err());
        });
    }

    #[test]
    fn promise_17_a_function_cannot_read_what_nothing_writes_but_can_write_it() {
        let _watchdog = watch();
        let (stream, buffer) = (stream(), fresh(8));
        let inner = buffer.clone();
        let errors = stream.call_host(move || {
            [
                inner.to_vec::<u8>().unwrap_err(),
                inner.view::<u8>().unwrap_err(),
            ]
        });
        let errors = errors.unwrap().wait().unwrap();
        assert!(errors.iter().all(clika_runtime::Error::is_invalid_argument));
        let fill = Transfer::fill(&buffer, 0..4, &[3]).unwrap();
        assert!(matches!(
            fill.aside(number_function()).unwrap().attempt(),
            Ok(true)
        ));
        assert_eq!(buffer.to_vec::<u8>().unwrap()[..4], [3; 4]);
    }
}
