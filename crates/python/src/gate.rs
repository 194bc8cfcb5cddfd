//! Coming back to the interpreter, and the end of that.
//!
//! A thread that tries to attach while the interpreter ends is stopped in the middle of whatever it
//! runs, and with frames of Rust on its stack that aborts the process. So every way of ours back to
//! the interpreter leads through one gate. A thread announces itself, attaches, and signs off; the
//! exit hook closes the gate and waits for those that are between the two. From then on a thread
//! that comes to the gate stays there, parked, until the process ends.
//!
//! The gate is one word: threads between announcing and signing off, in steps of two, and the
//! closed bit. Whoever announces itself after the bit was set sees it.
//!
//! The thread that ends the interpreter is attached all the time and passes a closed gate.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

const CLOSED: u64 = 1;
const ONE: u64 = 2;

static GATE: AtomicU64 = AtomicU64::new(0);
/// Threads that wait in a call of ours, detached: the interpreter lock is then likely free.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static LAST: OnceLock<ThreadId> = OnceLock::new();

/// Runs `f` detached from the interpreter. For every wait, and for nothing that needs Python.
pub(crate) fn detached<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    let value = py.detach(|| {
        WAITING.fetch_add(1, Ordering::Relaxed);
        let value = f();
        WAITING.fetch_sub(1, Ordering::Relaxed);
        announce();
        value
    });
    sign_off();
    value
}

/// Runs `f` attached, on a thread that is not.
pub(crate) fn attached<T>(f: impl FnOnce(Python<'_>) -> T) -> T {
    announce();
    let value = Python::attach(f);
    sign_off();
    value
}

/// Whether another thread than the calling, detached one waits in a call of ours.
pub(crate) fn somebody_else_waits() -> bool {
    WAITING.load(Ordering::Relaxed) > 1
}

/// A stretch of an attached thread in which Python code may run under frames of ours. The exit
/// hook waits for its end, and none begins after that.
pub(crate) struct Section(());

impl Section {
    pub(crate) fn begin(py: Python<'_>) -> Self {
        if GATE.fetch_add(ONE, Ordering::SeqCst) & CLOSED != 0 && !is_last() {
            sign_off();
            py.detach(stay);
        }
        Self(())
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        sign_off();
    }
}

fn announce() {
    if GATE.fetch_add(ONE, Ordering::SeqCst) & CLOSED != 0 && !is_last() {
        sign_off();
        stay();
    }
}

fn sign_off() {
    GATE.fetch_sub(ONE, Ordering::SeqCst);
}

fn stay() {
    loop {
        thread::park();
    }
}

fn is_last() -> bool {
    LAST.get() == Some(&thread::current().id())
}

thread_local! {
    static CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `close` on the thread that ends the interpreter, which is attached.
pub(crate) fn close_here(close: impl FnOnce()) {
    CLOSING.set(true);
    close();
    CLOSING.set(false);
}

/// Whether the calling thread is inside [`close_here`], and so attached.
pub(crate) fn is_closing_here() -> bool {
    CLOSING.get()
}

/// Closes the gate behind the calling thread, which ends the interpreter.
pub(crate) fn close(py: Python<'_>) {
    /// Sections are brief; one that is not runs foreign code that nobody can stop.
    const PATIENCE: Duration = Duration::from_secs(1);
    let _ = LAST.set(thread::current().id());
    GATE.fetch_or(CLOSED, Ordering::SeqCst);
    py.detach(|| {
        let deadline = Instant::now() + PATIENCE;
        while GATE.load(Ordering::SeqCst) >= ONE && Instant::now() < deadline {
            thread::yield_now();
        }
    });
}

/// In a forked child, the threads that were counted are gone.
pub(crate) fn reset() {
    GATE.store(0, Ordering::SeqCst);
    WAITING.store(0, Ordering::Relaxed);
}
