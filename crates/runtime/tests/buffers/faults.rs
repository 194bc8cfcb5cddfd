//! Memory and threads that cannot be had, one after the other: each time a typed error, and the
//! runtime goes on.

use clika_runtime::foreign::faults::{Fault, plan};
use clika_runtime::{Buffer, Error, Stream};

use crate::child::answer_of_child;
use crate::process::{AS_IT_IS, alone};
use crate::{CPU, live_bytes};

/// Bytes of each buffer: too many for what is brief or kept in an operation itself.
const NBYTES: usize = 10_000;

/// Keeps the value, or the error.
fn keep<T>(errors: &mut Vec<Error>, outcome: Result<T, Error>) -> Option<T> {
    outcome.map_err(|error| errors.push(error)).ok()
}

/// A program that uses all there is, whatever of it fails: the errors.
fn program() -> Vec<Error> {
    let mut errors = vec![];
    let all = &mut errors;
    let streams = [
        keep(all, Stream::create(CPU)),
        keep(all, Stream::create(CPU)),
        keep(all, Stream::default_stream(CPU)),
    ];
    for stream in streams.iter().flatten() {
        let a = keep(all, Buffer::from_slice(CPU, &[1_u8; NBYTES]));
        let (Some(a), Some(b)) = (a, keep(all, Buffer::new(CPU, NBYTES))) else {
            continue;
        };
        keep(all, stream.copy_in(&[2; NBYTES], &b, 0));
        keep(all, stream.copy(&a, 0, &b, 1, NBYTES - 1));
        keep(
            all,
            stream.run_host((a.update::<u8>(), b.read::<u8>()), |(a, b)| a[0] = b[0]),
        );
        let count = NBYTES / 8;
        keep(
            all,
            stream.parallel_for(count, 100, a.update::<u64>(), |_, words| words.fill(3)),
        );
        let out = keep(all, stream.copy_out::<u8>(&a, 0..NBYTES));
        let value = out.and_then(|out| keep(all, out.wait()));
        assert!(value.is_none_or(|value| value == [3, 0, 0, 0, 0, 0, 0, 0].repeat(count)));
        if let Some(mut view) = keep(all, b.view_mut::<u8>()) {
            view[0] = 4;
        }
    }
    for stream in streams.iter().flatten() {
        keep(all, stream.synchronize());
        keep(all, stream.synchronize());
    }
    errors
}

/// What an error says, or what it names as its cause.
fn is_or_follows(error: &Error, is: fn(&Error) -> bool) -> bool {
    let source = std::error::Error::source(error);
    let cause = source.and_then(|source| source.downcast_ref::<Error>());
    is(error) || (error.is_cancelled() && cause.is_some_and(is))
}

/// Runs the program with the `n`-th one failing. `false`: there is no `n`-th one.
fn strike(fault: Fault, n: u64, fits: fn(&Error) -> bool) -> bool {
    plan(fault, n);
    let errors = program();
    let struck = plan(fault, 0);
    for error in &errors {
        assert!(is_or_follows(error, fits), "{n}: {error:?}");
    }
    assert!(struck || errors.is_empty(), "{n}: {errors:?}");
    assert_eq!(live_bytes(), 0, "{n}");
    let again = program();
    assert!(again.is_empty(), "{n}: {again:?}");
    assert_eq!(live_bytes(), 0, "{n}");
    struck
}

#[test]
fn promise_15_each_allocation_may_fail_and_nothing_leaks() {
    alone(AS_IT_IS, || {
        let mut n = 1;
        while strike(Fault::Allocation, n, |error| {
            // What was never written for want of memory cannot be read.
            error.is_out_of_memory() || error.is_invalid_argument()
        }) {
            CPU.release_memory().unwrap();
            n += 1;
        }
        // Three streams with two buffers and a copy kept in between.
        assert!(n > 9, "{n}");
    });
}

#[test]
fn promise_15_each_thread_may_be_refused_and_the_runtime_starts_or_goes_on() {
    // Each child starts a runtime of its own, whose threads come one after the other.
    let settings = [("CLIKA_WORKERS", "4"), ("CLIKA_HOST_THREADS", "4")];
    alone(&settings, || {
        let mut n = 1;
        while answer_of_child(|| strike(Fault::Thread, n, Error::is_device)) {
            n += 1;
        }
        assert!(n > 2, "{n}");
    });
}

#[test]
fn promise_15_plans_leave_other_runs_alone() {
    alone(AS_IT_IS, || {
        assert!(plan(Fault::Allocation, 1000), "there was no plan");
        assert!(program().is_empty());
        assert!(!plan(Fault::Allocation, 0), "it has not struck yet");
    });
}
