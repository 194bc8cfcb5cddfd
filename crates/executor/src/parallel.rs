//! One large operation shared out over idle workers.
//!
//! # Protocol
//! The range is cut into chunks. A *share* counts the chunks that were handed out (`next`) and the
//! ones that ended (`ended`); whoever takes part hands itself chunk after chunk until there are no
//! more. The caller takes part and leaves only when all chunks ended; it runs nothing else meanwhile,
//! since work of another strand inside its operation could wait for that very operation.
//!
//! Helpers are loose jobs in the native lane, so they come when a worker is free, or never. One that
//! comes late finds no chunk. The function is borrowed from the caller: it is touched only between
//! taking a chunk and ending it, and the caller, who waits for the end of every chunk, outlives that.
//!
//! The end of a chunk is released by its count, and acquired by the caller: it sees all writes.
#![allow(
    unsafe_code,
    reason = "lends the caller's function to other threads; each block states its reason"
)]

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::executor::{Executor, Loose};
use crate::failure::{Fault, discard};
use crate::lane::Job;
use crate::operation::{Kind, Operation};
use crate::sync::{AtomicUsize, Mutex, Ordering, SPINS, Thread, current, park_until, pause};

/// What the participants share.
struct Share {
    /// Valid while a chunk is under way.
    function: *const (dyn Fn(Range<usize>) + Sync),
    count: usize,
    grain: usize,
    chunks: usize,
    next: AtomicUsize,
    ended: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: Thread,
}

// SAFETY: the function is `Sync`, and who calls it is told by the protocol above.
unsafe impl Send for Share {}
// SAFETY: as above; everything else in it is `Sync`.
unsafe impl Sync for Share {}

impl Share {
    /// Runs chunks until there are none.
    fn take_part(&self) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks {
                return;
            }
            let start = chunk * self.grain;
            let range = start..self.count.min(start.saturating_add(self.grain));
            // SAFETY: this chunk has not ended, so the caller is still in `parallel_for`.
            let function = unsafe { &*self.function };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| function(range))) {
                self.keep(payload);
            }
            if self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.chunks {
                self.caller.unpark();
            }
        }
    }

    /// Keeps what the first panic carried, for the caller. What a later one carried is dropped here,
    /// without the lock and without a panic of its own: that would come before the end of the chunk.
    fn keep(&self, payload: Box<dyn Any + Send>) {
        let mut first = self.panic.lock();
        if first.is_none() {
            *first = Some(payload);
            return;
        }
        drop(first);
        discard(payload);
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.chunks
    }

    fn await_end(&self) {
        for _ in 0..SPINS {
            if self.is_over() {
                return;
            }
            pause();
        }
        while !self.is_over() {
            park_until(None);
        }
    }
}

/// The caller's function while others may have it. Dropping this takes part and returns when all chunks
/// have ended, also where calling for helpers went wrong halfway.
struct Lent<'a>(&'a Share);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.take_part();
        self.0.await_end();
    }
}

/// A worker that takes part.
struct Help(Arc<Share>);

impl Operation for Help {
    const KIND: Kind = Kind::Native;

    fn run(self) -> Result<(), Fault> {
        self.0.take_part();
        Ok(())
    }
}

impl Executor {
    /// Calls `function` for all of `0..count`, in ranges of at most `grain`, on the calling thread
    /// and on workers that are idle. Returns when all of it has ended.
    ///
    /// `function` must not block.
    ///
    /// # Panics
    /// With what `function` panicked with, once every range has ended; the others are not cut short.
    pub fn parallel_for(&self, count: usize, grain: usize, function: impl Fn(Range<usize>) + Sync) {
        let grain = grain.max(1);
        let chunks = count.div_ceil(grain);
        if chunks < 2 {
            if count > 0 {
                function(0..count);
            }
            return;
        }
        let function: &(dyn Fn(Range<usize>) + Sync) = &function;
        // SAFETY: only the lifetime changes. See the protocol for who may use it and until when.
        let function: &'static (dyn Fn(Range<usize>) + Sync) =
            unsafe { std::mem::transmute(function) };
        let share = Arc::new(Share {
            function,
            count,
            grain,
            chunks,
            next: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            panic: Mutex::new(None),
            caller: current(),
        });
        let lent = Lent(&share);
        self.call_helpers(&share);
        drop(lent);
        let panic = share.panic.lock().take();
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    fn call_helpers(&self, share: &Arc<Share>) {
        if self.is_inherited() {
            return;
        }
        let shared = self.shared();
        let helpers = self.workers().min(share.chunks) - 1;
        for _ in 0..helpers {
            let help = Loose::new(shared.clone(), Help(share.clone()));
            // A closed lane gives none. The caller does all of it then.
            drop(shared.native.push(Job::Loose(Box::new(help))));
        }
    }
}
