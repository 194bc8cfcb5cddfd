//! Futures: the values of submitted functions.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use clika_executor::sync::Mutex;
use clika_executor::{AsyncWait, Failure, Point, Reason};

use crate::error::Error;
use crate::inline::{Ran, Why};
use crate::stream::Stream;
use crate::wait;

/// The value of a submitted function, once it has run.
///
/// Taking the result of a function that failed acknowledges the failure for its stream. A future
/// that is dropped leaves the function to run.
///
/// # Examples
///
/// ```
/// use clika_runtime::{Device, Stream};
///
/// let stream = Stream::create(Device::cpu())?;
/// let answer = stream.call(|| 6 * 7)?;
/// assert_eq!(answer.wait()?, 42);
/// # Ok::<(), clika_runtime::Error>(())
/// ```
#[must_use = "the value is lost with its future; use `submit` for work without one"]
pub struct Future<T> {
    stream: Stream,
    point: Point,
    /// How it ended, if the call itself ran it.
    ran: Option<Result<(), Why>>,
    value: Arc<Value<T>>,
}

/// Where the function leaves its value. No code of the user's runs under the lock.
pub(crate) struct Value<T>(Mutex<State<T>>);

enum State<T> {
    Waiting,
    Cancelled,
    Running,
    Done(T),
    Taken,
}

/// Why there is no value to take.
enum Missing {
    Taken,
    Cancelled,
    /// The function failed or was skipped.
    NeverMade,
}

impl<T: Send + 'static> Value<T> {
    /// The place for the value of `work`, and the operation that fills it.
    pub(crate) fn of<F: FnOnce() -> T + Send + 'static>(
        work: F,
    ) -> (
        Arc<Self>,
        impl FnOnce() -> Result<(), Reason> + Send + 'static + use<T, F>,
    ) {
        let value = Self::waiting();
        let place = value.clone();
        let fill = move || {
            if place.begin() {
                place.fill(work());
            }
            Ok(())
        };
        (value, fill)
    }

    /// A place for a value to come.
    pub(crate) fn waiting() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waiting)))
    }

    /// Begins the work, unless it was cancelled.
    pub(crate) fn begin(&self) -> bool {
        self.turn(State::Running)
    }

    fn cancel(&self) -> bool {
        self.turn(State::Cancelled)
    }

    /// Goes from waiting to `state`; `false` if it is past waiting.
    fn turn(&self, state: State<T>) -> bool {
        let mut now = self.0.lock();
        let waits = matches!(*now, State::Waiting);
        if waits {
            *now = state;
        }
        waits
    }

    /// Leaves the value.
    pub(crate) fn fill(&self, value: T) {
        *self.0.lock() = State::Done(value);
    }

    /// Takes the value out, if it is there; else what is there stays.
    fn take(&self) -> Result<T, Missing> {
        let mut now = self.0.lock();
        match std::mem::replace(&mut *now, State::Taken) {
            State::Done(value) => Ok(value),
            State::Taken => Err(Missing::Taken),
            State::Cancelled => {
                *now = State::Cancelled;
                Err(Missing::Cancelled)
            }
            state @ (State::Waiting | State::Running) => {
                *now = state;
                Err(Missing::NeverMade)
            }
        }
    }
}

impl<T: Send + 'static> Future<T> {
    pub(crate) fn new(stream: Stream, point: Point, value: Arc<Value<T>>) -> Self {
        Self {
            stream,
            point,
            ran: None,
            value,
        }
    }

    /// The future of a function that has run, or was skipped, on the calling thread.
    pub(crate) fn of_ran(stream: Stream, ran: Ran, value: Arc<Value<T>>) -> Self {
        let outcome = ran.failure.map_or(Ok(()), Err);
        Self {
            stream,
            point: ran.point,
            ran: Some(outcome),
            value,
        }
    }

    /// Blocks until the function has run, and takes its value.
    ///
    /// # Errors
    /// The failure of the function, which is acknowledged by that; cancelled, if it was skipped
    /// because of an earlier failure (the error's source) or by [`cancel`](Self::cancel); a
    /// deadlock if this is called inside work that would wait for itself.
    pub fn wait(self) -> Result<T, Error> {
        self.settle(None)
    }

    /// As [`wait`](Self::wait), for at most `timeout`; zero polls. The value can be taken once.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait); a timeout if the function has not run by then, and an invalid
    /// argument if the value was taken before.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<T, Error> {
        self.settle(Instant::now().checked_add(timeout))
    }

    fn settle(&self, deadline: Option<Instant>) -> Result<T, Error> {
        wait::admit(self.stream.strand())?;
        if !self.is_done() {
            wait::until(&self.point, deadline)?;
        }
        self.take()
    }

    /// The value of a function that has run or never will.
    fn take(&self) -> Result<T, Error> {
        self.value.take().map_err(|missing| match missing {
            Missing::Taken => Error::invalid_argument("the value was taken before"),
            Missing::Cancelled => {
                Error::cancelled("the work was cancelled through its future", None)
            }
            Missing::NeverMade => self.failure(),
        })
    }

    /// Why the function has no value.
    fn failure(&self) -> Error {
        match self.why() {
            Some(Why::Failed(failure)) => {
                self.point.acknowledge();
                wait::failed(&failure)
            }
            Some(Why::Skipped(failure)) => wait::skipped(&failure),
            None => Error::device("the runtime lost the outcome of this work", None),
        }
    }

    fn why(&self) -> Option<Why> {
        match &self.ran {
            Some(outcome) => outcome.clone().err(),
            None => self.point.failure().map(|failure| self.why_by(failure)),
        }
    }

    /// Whether the failure that the point covers is this function's own, or that of bytes it reads.
    fn why_by(&self, failure: Arc<Failure>) -> Why {
        if self.point.is_first_failed() {
            Why::Failed(failure)
        } else {
            Why::Skipped(failure)
        }
    }

    /// Whether the function has run, was skipped, or was cancelled. Never blocks.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_over() || self.is_cancelled()
    }

    fn is_over(&self) -> bool {
        self.ran.is_some() || self.point.is_reached()
    }

    /// Skips the function if it has not begun, without failing the stream. `true` if so.
    pub fn cancel(&self) -> bool {
        // A forked child does not look at what the parent's threads may have locked.
        let inherited = self.stream.strand().is_inherited();
        !inherited && (self.is_cancelled() || (!self.is_over() && self.value.cancel()))
    }

    /// Whether [`cancel`](Self::cancel) came in time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        !self.stream.strand().is_inherited() && matches!(*self.value.0.lock(), State::Cancelled)
    }
}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.ran.is_some() || self.point.is_reached() {
            "done"
        } else {
            "pending"
        };
        write!(f, "Future({:?}, {done})", self.stream.name())
    }
}

/// An `await` of a future: [`Future::wait`] without a thread that waits.
#[derive(Debug)]
pub struct FutureWait<T> {
    wait: AsyncWait,
    future: Future<T>,
}

impl<T: Send + 'static> std::future::Future for FutureWait<T> {
    type Output = Result<T, Error>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Self::Output> {
        if let Err(error) = wait::admit(self.future.stream.strand()) {
            return Poll::Ready(Err(error));
        }
        if self.future.is_done() {
            return Poll::Ready(self.future.take());
        }
        std::pin::Pin::new(&mut self.wait)
            .poll(context)
            .map(|()| self.future.take())
    }
}

impl<T: Send + 'static> IntoFuture for Future<T> {
    type Output = Result<T, Error>;
    type IntoFuture = FutureWait<T>;

    fn into_future(self) -> FutureWait<T> {
        FutureWait {
            wait: AsyncWait::new(self.point.clone()),
            future: self,
        }
    }
}
