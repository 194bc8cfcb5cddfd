//! How the tests wait for what must come; the watchdog ends them if it does not.

use std::future::IntoFuture;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Returns once `condition` holds, which another thread is about to bring about.
pub(crate) fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Wakes the thread that sleeps in [`block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest async runtime there is.
pub(crate) fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        if let Poll::Ready(value) = poll(future.as_mut(), &waker) {
            return value;
        }
        thread::park();
    }
}

/// Begins to wait and leaves it at that: the wait is under way when this returns.
pub(crate) fn begin<F: IntoFuture>(future: F) -> F::IntoFuture
where
    F::IntoFuture: Unpin,
{
    let mut wait = future.into_future();
    assert!(
        poll(Pin::new(&mut wait), Waker::noop()).is_pending(),
        "there was nothing to wait for"
    );
    wait
}

/// Asks a future once.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}
