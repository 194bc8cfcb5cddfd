//! What an executor must know of the process and its system: forks, signals, and the time.
#![allow(
    unsafe_code,
    reason = "calls into the C library; each block states its reason"
)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Apart;

/// Forks between the first process and this one. Read for every submission, so whatever statics the
/// linker puts beside it must not share its cache lines.
static GENERATION: Apart<AtomicU64> = Apart(AtomicU64::new(0));

/// A number that differs between a process and the children it forks.
#[inline]
#[must_use]
pub fn generation() -> u64 {
    GENERATION.0.load(Ordering::Relaxed)
}

/// A number that no other strand has, in this process or in those it was forked from: a child may
/// be inside an operation of its parent's.
pub(crate) fn next_strand() -> u64 {
    static STRANDS: AtomicU64 = AtomicU64::new(1);
    STRANDS.fetch_add(1, Ordering::Relaxed)
}

/// Makes [`generation`] count forks from here on.
pub(crate) fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only adds to an atomic, which is allowed in a forked child.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

#[cfg(unix)]
extern "C" fn forked() {
    GENERATION.0.fetch_add(1, Ordering::Relaxed);
}

/// A clock that costs a few nanoseconds and moves in steps of the system's tick, 1 to 10 ms. In
/// nanoseconds, and never zero.
#[inline]
pub(crate) fn coarse_clock() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call fills `now` and keeps no pointer to it. Linux has this clock, and where a
        // sandbox forbids it, `now` stays as it is.
        let _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        let (seconds, rest) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
        seconds * 1_000_000_000 + rest + 1
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let start = START.get_or_init(std::time::Instant::now);
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX - 1) + 1
    }
}

/// Raised by a fault of the thread itself. To block one would end the process before its handler,
/// a language runtime's or the standard library's own, can deal with it or say what it was.
#[cfg(unix)]
const FAULTS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Runs `f` with all signals but faults blocked, so that a thread made in it handles none that is
/// meant for the program.
pub fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(unix)]
    {
        // SAFETY: both sets are plain values that the calls fill before they are read, and the
        // mask that was in force is put back.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for fault in FAULTS {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let result = f();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            result
        }
    }
    #[cfg(not(unix))]
    f()
}
