//! Locks, atomics and threads: the one door to them for this crate.
//!
//! Every other module takes its synchronisation from here, as does `clika-runtime` for what it locks
//! per operation, so that the same code runs on the real machine, under loom (`--cfg loom`, every
//! interleaving of a small program) and under shuttle (`--cfg shuttle`, many random schedules of a
//! larger one).
//!
//! The lock of the real build is a futex of four bytes. A library lock with a process-wide table of
//! waiting threads would be shorter to name, but `fork` may copy such a table while another thread
//! holds one of its entries, and the child's first contended lock would then never return.

pub(crate) use imp::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering, Thread, current, park_until, spawn, thread_local,
    yield_now,
};
pub use imp::{Mutex, MutexGuard};

/// How often a waiting thread looks before it sleeps. Model checkers look once: they explore every
/// outcome of one look anyway.
pub(crate) const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// One pause of a bounded spin.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(any(loom, shuttle)))]
    std::hint::spin_loop();
}

/// Keeps a value away from the cache lines of its neighbours, which others write.
#[repr(align(128))]
pub struct Apart<T>(pub T);

#[cfg(not(any(loom, shuttle)))]
mod imp {
    #![allow(unsafe_code, reason = "a lock must promise what no type can show")]

    use std::io;
    use std::time::{Duration, Instant};

    use crate::faults::{self, Fault};

    use std::sync::atomic::AtomicU32;
    use std::thread::park;

    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use std::thread::{Thread, current, yield_now};
    pub(crate) use std::thread_local;

    /// A lock that a fork may find held.
    pub type Mutex<T> = lock_api::Mutex<RawFutex, T>;
    /// Holds a [`Mutex`].
    pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFutex, T>;

    /// Sleeps until unparked or until `deadline`.
    pub(crate) fn park_until(deadline: Option<Instant>) {
        match deadline {
            None => park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left > Duration::ZERO {
                    std::thread::park_timeout(left);
                }
            }
        }
    }

    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        if faults::strikes(Fault::Thread) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map(drop)
    }

    const UNLOCKED: u32 = 0;
    const LOCKED: u32 = 1;
    const CONTENDED: u32 = 2;

    /// A mutex in one futex word: unlocked, locked, or locked with threads asleep on it.
    pub struct RawFutex(AtomicU32);

    impl RawFutex {
        #[inline]
        fn take(&self) -> bool {
            self.0
                .compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        }

        #[cold]
        fn lock_contended(&self) {
            for _ in 0..100 {
                if self.0.load(Ordering::Relaxed) == UNLOCKED && self.take() {
                    return;
                }
                std::hint::spin_loop();
            }
            while self.0.swap(CONTENDED, Ordering::Acquire) != UNLOCKED {
                atomic_wait::wait(&self.0, CONTENDED);
            }
        }
    }

    // SAFETY: a thread holds the lock from the exchange that leaves `UNLOCKED` until its own
    // `unlock`; no second exchange can succeed in between. Locking acquires, unlocking releases.
    unsafe impl lock_api::RawMutex for RawFutex {
        const INIT: Self = Self(AtomicU32::new(UNLOCKED));
        type Guard = lock_api::GuardSend;

        #[inline]
        fn lock(&self) -> Self::Guard {
            if !self.take() {
                self.lock_contended();
            }
            Self::Guard::default()
        }

        #[inline]
        fn try_lock(&self) -> Option<Self::Guard> {
            self.take().then(Self::Guard::default)
        }

        #[inline]
        unsafe fn unlock(&self, _guard: Self::Guard) {
            if self.0.swap(UNLOCKED, Ordering::Release) == CONTENDED {
                atomic_wait::wake_one(&self.0);
            }
        }

        fn is_locked(&self) -> bool {
            self.0.load(Ordering::Relaxed) != UNLOCKED
        }
    }
}

#[cfg(any(loom, shuttle))]
mod imp {
    //! The model checkers' twins. Their clocks stand still, so deadlines never pass.

    use std::io;

    #[cfg(loom)]
    use loom as model;
    #[cfg(shuttle)]
    use shuttle as model;

    pub(crate) use super::parking::{Thread, current, park_until};
    pub use model::sync::MutexGuard;
    pub(crate) use model::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use model::thread::yield_now;
    pub(crate) use model::thread_local;

    /// A lock.
    pub struct Mutex<T>(model::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Mutex<T> {
        /// An open lock around `value`.
        pub fn new(value: T) -> Self {
            Self(model::sync::Mutex::new(value))
        }

        /// What it guards, of which this is the only user.
        pub fn get_mut(&mut self) -> &mut T {
            self.0
                .get_mut()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        /// Locks it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    pub(crate) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        model::thread::spawn(body);
        Ok(())
    }
}

#[cfg(shuttle)]
mod parking {
    pub(crate) use shuttle::thread::{Thread, current};

    pub(crate) fn park_until(_deadline: Option<std::time::Instant>) {
        shuttle::thread::park();
    }
}

#[cfg(loom)]
mod parking {
    //! Built of loom's `Notify`, since its `unpark` would also end a wait for a lock.

    use std::sync::Arc;

    use loom::sync::Notify;

    #[derive(Clone)]
    pub(crate) struct Thread(Arc<Notify>);

    loom::thread_local! {
        static HERE: Thread = Thread(Arc::new(Notify::new()));
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            self.0.notify();
        }
    }

    pub(crate) fn current() -> Thread {
        HERE.with(Clone::clone)
    }

    pub(crate) fn park_until(_deadline: Option<std::time::Instant>) {
        current().0.wait();
    }
}
