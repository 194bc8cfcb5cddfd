//! Events: points on the timelines of streams.

use std::fmt;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clika_executor::{AsyncWait, Mark, Operation, Point};

use crate::error::Error;
use crate::stream::Stream;
use crate::wait::{self, Settled};

/// A point on a stream's timeline: what was submitted before it was recorded, and nothing after.
///
/// Whoever waits for it, the host or another stream, sees everything before it. An event is a value:
/// clone it, send it, wait for it as often as you like; recording again makes another one.
///
/// Waiting for an event that covers a failure returns the failure, but does not acknowledge it:
/// only the stream's owner can say that the work may go on.
///
/// # Examples
///
/// ```
/// use clika_runtime::{Device, Stream};
///
/// let (producer, consumer) = (Stream::create(Device::cpu())?, Stream::create(Device::cpu())?);
/// producer.submit(|| println!("first"))?;
/// consumer.wait_event(&producer.record_event())?;
/// consumer.submit(|| println!("second"))?;
/// consumer.synchronize()?;
/// # Ok::<(), clika_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Event {
    stream: Stream,
    point: Point,
    stamp: Option<Stamp>,
}

impl Event {
    pub(crate) fn new(stream: Stream, point: Point, stamp: Option<Stamp>) -> Self {
        Self {
            stream,
            point,
            stamp,
        }
    }

    pub(crate) fn point(&self) -> &Point {
        &self.point
    }

    /// The stream that it was recorded on.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether it is timed.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.stamp.is_some()
    }

    /// Whether it is reached, failed or not. Never blocks.
    #[must_use]
    pub fn query(&self) -> bool {
        self.point.is_reached()
    }

    /// Blocks until it is reached.
    ///
    /// # Errors
    /// The failure that it covers; a deadlock if this is called inside work that would wait for
    /// itself; a device error if its stream was inherited by a fork.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.settle(None)
    }

    /// As [`synchronize`](Self::synchronize), for at most `timeout`; zero polls.
    ///
    /// # Errors
    /// As for [`synchronize`](Self::synchronize); a timeout if it is not reached then.
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.settle(Instant::now().checked_add(timeout))
    }

    fn settle(&self, deadline: Option<Instant>) -> Result<(), Error> {
        wait::admit(self.stream.strand())?;
        wait::until(&self.point, deadline)?;
        Settled::of(&self.point)
    }

    /// The time from this event to `end`. Zero if `end` was reached first:
    /// [`elapsed_seconds`](Self::elapsed_seconds) has a sign.
    ///
    /// # Errors
    /// Invalid argument unless both events are timed and reached.
    pub fn elapsed_time(&self, end: &Self) -> Result<Duration, Error> {
        Ok(Duration::try_from_secs_f64(self.elapsed_seconds(end)?).unwrap_or(Duration::ZERO))
    }

    /// The time from this event to `end` in seconds, negative if `end` was reached first.
    ///
    /// # Errors
    /// As for [`elapsed_time`](Self::elapsed_time).
    pub fn elapsed_seconds(&self, end: &Self) -> Result<f64, Error> {
        let (start, end) = (self.nanoseconds("start")?, end.nanoseconds("end")?);
        Ok((end as f64 - start as f64) / 1e9)
    }

    fn nanoseconds(&self, which: &str) -> Result<u64, Error> {
        let Some(stamp) = &self.stamp else {
            return Err(Error::invalid_argument(format!(
                "the {which} event has no time: record it as a timed event (in Python with timing=True)"
            )));
        };
        if !self.query() {
            return Err(Error::invalid_argument(format!(
                "the {which} event is not reached yet: synchronize it first"
            )));
        }
        Ok(stamp.0.load(Ordering::Acquire))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = if self.query() { "reached" } else { "pending" };
        write!(f, "Event({:?}, {reached})", self.stream.name())
    }
}

/// When a timed event was reached, in nanoseconds of this process.
#[derive(Clone)]
pub(crate) struct Stamp(Arc<AtomicU64>);

impl Stamp {
    pub(crate) fn new() -> Self {
        start();
        Self(Arc::new(AtomicU64::new(0)))
    }

    pub(crate) fn set(&self) {
        let since = Instant::now().duration_since(start());
        // 584 years fit.
        self.0.store(
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Release,
        );
    }

    /// The operation that sets it.
    pub(crate) fn mark(&self) -> impl Operation + use<> {
        let stamp = self.clone();
        Mark::new(move || stamp.set())
    }
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// An `await` of an event: [`Event::synchronize`] without a thread that waits.
#[derive(Debug)]
pub struct EventWait(AsyncWait);

impl std::future::Future for EventWait {
    type Output = Result<(), Error>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        if let Err(error) = wait::admit(self.0.point().strand()) {
            return std::task::Poll::Ready(Err(error));
        }
        std::pin::Pin::new(&mut self.0)
            .poll(context)
            .map(|()| Settled::of(self.0.point()))
    }
}

impl IntoFuture for &Event {
    type Output = Result<(), Error>;
    type IntoFuture = EventWait;

    fn into_future(self) -> EventWait {
        EventWait(AsyncWait::new(self.point.clone()))
    }
}

impl IntoFuture for Event {
    type Output = Result<(), Error>;
    type IntoFuture = EventWait;

    fn into_future(self) -> EventWait {
        (&self).into_future()
    }
}
