//! A hang is a failure: the watchdog ends the process with a message.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Far more than any test takes, on the slowest machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(100);

/// While it lives, the test must end within a generous time.
pub(crate) struct Watchdog {
    _ended: mpsc::Sender<()>,
}

/// Watches over the calling test.
pub(crate) fn watch() -> Watchdog {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    watch_over(limit(), move || name)
}

/// A soak takes as many times longer as it runs more.
fn limit() -> Duration {
    match std::env::var("CLIKA_SOAK").as_deref() {
        Ok("1") => 50 * LIMIT,
        _ => LIMIT,
    }
}

/// Watches over a test's own process, whose watchdog barks first.
pub(crate) fn watch_process(test: &'static str) -> Watchdog {
    watch_over(limit() + LIMIT / 2, move || {
        format!("the process of {test}")
    })
}

/// Watches over something that `describe` puts into words, should it hang.
pub(crate) fn watch_over(
    limit: Duration,
    describe: impl FnOnce() -> String + Send + 'static,
) -> Watchdog {
    let (end, ended) = mpsc::channel();
    let (settle, settled) = mpsc::channel();
    thread::spawn(move || {
        // A thread's first allocation takes address space, and gives some of it back: tests that limit
        // that must not see it half way.
        settle.send(()).unwrap();
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            give_up(limit, &describe());
        }
    });
    settled.recv().unwrap();
    Watchdog { _ended: end }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs cannot be ended by itself"
)]
fn give_up(limit: Duration, what: &str) -> ! {
    // Not `eprintln`, which panics where the reader is gone, and then nobody ends the process.
    let _ = writeln!(
        io::stderr(),
        "still running after {} s: {what}",
        limit.as_secs()
    );
    std::process::abort();
}
