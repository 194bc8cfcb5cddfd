//! The measures of buffers.

#![expect(clippy::expect_used, reason = "a measure stops at the first surprise")]

use std::time::Instant;

use clika_runtime::{Buffer, Device, Stream};

use super::measure::{Figures, Sizes, median, nanoseconds};

/// The measures by name.
pub const NAMES: [&str; 3] = ["buffers", "alloc", "copy"];

const NO_FAILURE: &str = "no operation of a measure fails";
const CPU: Device = Device::cpu();

/// Runs one measure of [`NAMES`] on our own buffers; `None` for any other name.
pub fn run(name: &str, sizes: &Sizes) -> Option<Figures> {
    Some(match name {
        "buffers" => submits(sizes),
        "alloc" => allocations(sizes, &|size| {
            let buffer = Buffer::new(CPU, size).expect(NO_FAILURE);
            let mut view = buffer.view_mut::<u8>().expect(NO_FAILURE);
            view[0] = 1;
        }),
        "copy" => copies(sizes),
        _ => return None,
    })
}

/// Submitting an operation that writes to one of several buffers and reads the others.
fn submits(sizes: &Sizes) -> Figures {
    let stream = Stream::create(CPU).expect(NO_FAILURE);
    let buffer = || Buffer::from_slice(CPU, &[0_u64]).expect(NO_FAILURE);
    let buffers: Vec<Buffer> = (0..8).map(|_| buffer()).collect();
    let cost = |submit: &dyn Fn()| {
        let once = || {
            let start = Instant::now();
            (0..sizes.submits).for_each(|_| submit());
            let submitted = nanoseconds(start) / sizes.submits as f64;
            stream.synchronize().expect(NO_FAILURE);
            submitted
        };
        once();
        median((0..sizes.repeats).map(|_| once()).collect())
    };
    let write = || buffers[0].update::<u64>();
    let read = |at: usize| buffers[at].read::<u64>();
    vec![
        (
            "one_ns",
            cost(&|| {
                let access = write();
                let work = |word: &mut [u64]| word[0] += 1;
                stream.run(access, work).expect(NO_FAILURE);
            }),
        ),
        (
            "two_ns",
            cost(&|| {
                let accesses = (write(), read(1));
                let work = |(word, one): (&mut [u64], &[u64])| word[0] += one[0];
                stream.run(accesses, work).expect(NO_FAILURE);
            }),
        ),
        (
            "eight_ns",
            cost(&|| {
                let accesses = (
                    write(),
                    read(1),
                    read(2),
                    read(3),
                    read(4),
                    read(5),
                    read(6),
                    read(7),
                );
                stream
                    .run(accesses, |slices| slices.0[0] += slices.7[0])
                    .expect(NO_FAILURE);
            }),
        ),
    ]
}

/// Taking a block, writing to it, and giving it back: `take` does all of it for a size in bytes.
pub fn allocations(sizes: &Sizes, take: &dyn Fn(usize)) -> Figures {
    let cost = |size: usize| {
        let count = sizes.submits / 10;
        let once = || {
            let start = Instant::now();
            (0..count).for_each(|_| take(size));
            nanoseconds(start) / count as f64
        };
        once();
        median((0..sizes.repeats).map(|_| once()).collect())
    };
    vec![
        ("1kb_ns", cost(1 << 10)),
        ("1mb_ns", cost(1 << 20)),
        ("64mb_ns", cost(64 << 20)),
    ]
}

/// How many bytes the measure of copies copies at once.
pub const COPIED: usize = 64 << 20;

/// Copying between two buffers, in bytes read and written per second.
fn copies(sizes: &Sizes) -> Figures {
    let stream = Stream::create(CPU).expect(NO_FAILURE);
    let source = Buffer::from_slice(CPU, &vec![1_u8; COPIED]).expect(NO_FAILURE);
    let target = Buffer::new(CPU, COPIED).expect(NO_FAILURE);
    bandwidth(sizes, &mut || {
        stream
            .copy(&source, 0, &target, 0, COPIED)
            .expect(NO_FAILURE);
        stream.synchronize().expect(NO_FAILURE);
    })
}

/// Copying so many bytes as [`COPIED`] says, in gigabytes read and written per second.
pub fn bandwidth(sizes: &Sizes, copy: &mut dyn FnMut()) -> Figures {
    copy();
    let once = |_| {
        let start = Instant::now();
        copy();
        2.0 * COPIED as f64 / nanoseconds(start)
    };
    vec![("gb_s", median((0..3 * sizes.repeats).map(once).collect()))]
}
