//! A forked child, and what it is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use clika_runtime::Error;

/// Runs `body` in a forked child, which must end well and soon.
#[expect(unsafe_code, reason = "the standard library does not fork")]
pub(crate) fn in_child(body: impl FnOnce()) {
    // SAFETY: the child runs `body` and ends without returning, so nothing of the parent's test
    // runs twice; `body` uses only what promises to work after a fork, and the allocator does.
    let status = unsafe {
        match libc::fork() {
            0 => {
                // A child that hangs is ended by the alarm.
                libc::alarm(60);
                let outcome = catch_unwind(AssertUnwindSafe(body));
                libc::_exit(i32::from(outcome.is_err()));
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    };
    assert_eq!(status, 0, "the child failed, or hung and was ended");
}

/// Checks that a child may not do this with what it inherited.
#[track_caller]
pub(crate) fn refused<T>(outcome: Result<T, Error>) {
    let Err(error) = outcome else {
        panic!("it was not refused")
    };
    assert!(error.is_device(), "{error:?}");
    assert!(error.to_string().contains("forked"), "{error}");
}
