//! A forked child.
#![allow(unsafe_code, reason = "forking, and waiting for the child")]

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

/// Forks; the child runs `body` and must come to its end. A child that hangs is ended by its alarm.
#[track_caller]
pub(crate) fn fork(body: impl FnOnce()) {
    // SAFETY: the C library makes its allocator usable in the child; the child uses nothing else
    // that another thread may have held, which is what is being tested.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain calls; `_exit` runs no destructors of what the parent owns.
            unsafe { libc::alarm(20) };
            let outcome = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made, and fills `status`.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            let status = ExitStatus::from_raw(status);
            assert!(status.success(), "the child: {status}");
        }
    }
}
