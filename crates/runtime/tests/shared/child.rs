//! A forked child, and what it is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use clika_runtime::Error;

/// Runs `body` in a forked child, which must end well and soon.
pub(crate) fn in_child(body: impl FnOnce()) {
    let body = || {
        body();
        true
    };
    assert!(answer_of_child(body));
}

/// Runs `body` in a forked child, which must end well and soon: what it returned.
#[expect(unsafe_code, reason = "the standard library does not fork")]
pub(crate) fn answer_of_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `body` and ends without returning, so nothing of the parent's test
    // runs twice; `body` uses only what promises to work after a fork, and the allocator does.
    let status = unsafe {
        match libc::fork() {
            0 => {
                // A child that hangs is ended by the alarm.
                libc::alarm(60);
                let outcome = catch_unwind(AssertUnwindSafe(body));
                libc::_exit(outcome.map_or(1, |answer| if answer { 0 } else { 2 }));
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    };
    assert!(
        libc::WIFEXITED(status),
        "the child hung and was ended: {status}"
    );
    let code = libc::WEXITSTATUS(status);
    assert!(code != 1, "the child failed");
    code == 0
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
