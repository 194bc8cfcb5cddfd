//! Streams: ordered, asynchronous queues of device work.

use std::any::type_name;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clika_executor::{AsyncWait, Host, Native, Operation, Reason, Strand};

use crate::aside;
use crate::device::Device;
use crate::error::Error;
use crate::event::{Event, Stamp};
use crate::future::{Future, Value};
use crate::inline;
use crate::outcome::Outcome;
use crate::runtime::{Runtime, refused, runtime, started};
use crate::wait::{self, Settled};

/// An ordered queue of device work.
///
/// What is submitted runs in order, asynchronously of the host. Streams are independent of each
/// other unless [`wait_event`](Stream::wait_event) or [`wait_stream`](Stream::wait_stream) says
/// otherwise. A clone is another handle of the same stream; any thread may use it.
///
/// # Failures
/// The first operation that returns an error or panics fails the stream: what was submitted behind
/// it is skipped, until the failure is *acknowledged*. [`synchronize`](Stream::synchronize), an
/// `await` of the stream, and taking the failed operation's own result return the failure and by
/// that acknowledge it. What is submitted from then on runs.
///
/// # Dropping
/// Dropping the last handle neither blocks nor cancels: what was submitted runs. A failure that
/// nobody can acknowledge any more is reported on the standard error stream.
///
/// # Examples
///
/// ```
/// use clika_runtime::{Device, Stream};
///
/// let stream = Stream::create(Device::cpu())?;
/// let sum = stream.call(|| (1..=10).sum::<u32>())?;
/// assert_eq!(sum.wait()?, 55);
/// stream.synchronize()?;
/// # Ok::<(), clika_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Handle>);

/// What all clones of a stream share; when it goes, nobody can acknowledge a failure any more.
pub(crate) struct Handle {
    strand: Arc<Strand>,
    device: Device,
    /// Its number among the streams of the runtime.
    listed_at: u32,
}

impl Stream {
    /// A fresh stream on `device`: never the default one, never shared.
    ///
    /// Submitting to it returns without waiting for the work, and independent streams overlap. It
    /// has no thread of its own; ten thousand of them are fine.
    ///
    /// # Errors
    /// A bad setting (see the crate's documentation) is an invalid argument; a device error if the
    /// runtime cannot start its first thread.
    pub fn create(device: Device) -> Result<Self, Error> {
        let runtime = runtime()?;
        Ok(Self::over(runtime, runtime.executor.strand(None), device))
    }

    /// As [`create`](Self::create), with a name for errors and timelines.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn named(device: Device, name: &str) -> Result<Self, Error> {
        let runtime = runtime()?;
        let strand = runtime.executor.strand(Some(name));
        Ok(Self::over(runtime, strand, device))
    }

    /// The one default stream of `device`, equal on every call and from every thread.
    ///
    /// Its work is dispatched on the calling thread: on the CPU it has run when the call returns,
    /// after waiting for what it depends on. Calls from several threads take turns. Work submitted
    /// from inside its own work is part of the enclosing operation and runs at once.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn default_stream(device: Device) -> Result<Self, Error> {
        Ok(runtime()?.default_stream(device).clone())
    }

    /// Adopts a native stream that the caller owns. The CPU has none.
    ///
    /// # Errors
    /// Always, on the CPU: invalid argument for 0, 1 and 2, which are CUDA's names for streams that
    /// cannot be ordered against others; unsupported for everything else.
    pub fn from_native_handle(device: Device, native_handle: u64) -> Result<Self, Error> {
        if native_handle <= 2 {
            return Err(Error::invalid_argument(format!(
                "native_handle {native_handle} is {}, which cannot be ordered against other \
                 streams: pass the handle of a stream that was created, such as \
                 torch.cuda.Stream().cuda_stream",
                match native_handle {
                    0 => "CUDA's legacy default stream (torch's current stream until one is set)",
                    1 => "CUDA's token for the legacy default stream",
                    _ => "CUDA's token for the per-thread default stream",
                }
            )));
        }
        Err(no_native_streams(device))
    }

    /// The native stream under this one, to lend to other libraries.
    ///
    /// # Errors
    /// Unsupported where there is none: on the CPU.
    pub fn native_handle(&self) -> Result<u64, Error> {
        Err(no_native_streams(self.device()))
    }

    pub(crate) fn over(runtime: &Runtime, strand: Arc<Strand>, device: Device) -> Self {
        let stream = Self(runtime.roster.add(|listed_at| Handle {
            strand,
            device,
            listed_at,
        }));
        tracing::debug!(stream = stream.name(), %device, "a stream is made");
        stream
    }

    /// A stream of no runtime's.
    #[cfg(all(test, shuttle))]
    pub(crate) fn unlisted(strand: Arc<Strand>, device: Device) -> Self {
        let listed_at = 0;
        Self(Arc::new(Handle {
            strand,
            device,
            listed_at,
        }))
    }

    pub(crate) fn of_handle(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    pub(crate) fn strand(&self) -> &Arc<Strand> {
        &self.0.strand
    }

    pub(crate) fn sole_strand(&self) -> Option<&Arc<Strand>> {
        (Arc::strong_count(&self.0) == 1).then(|| self.strand())
    }

    /// The device it runs on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Its name: the one it was given, else one made of its number.
    #[must_use]
    pub fn name(&self) -> String {
        self.strand().name()
    }

    /// Whether it is the default stream of its device.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.strand().is_inline()
    }

    /// Submits a function that computes and does not block.
    ///
    /// It may return nothing, or a `Result` whose error fails the stream, as a panic does. One that
    /// blocks belongs to [`submit_host`](Self::submit_host): here it would hold a worker that other
    /// streams need.
    ///
    /// # Errors
    /// A device error if the runtime has shut down or the stream was inherited by a fork. On the
    /// default stream, the function has run and its failure is returned, acknowledged.
    #[track_caller]
    pub fn submit<R: Outcome>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<(), Error> {
        let named = named_as(&work);
        let work = || work().into_result();
        self.push(work, named, Location::caller(), Native::named)
    }

    /// Submits a function that may block: it waits, reads files, or calls code that does.
    ///
    /// It runs on a thread of the host lane, which grows while its threads block.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    #[track_caller]
    pub fn submit_host<R: Outcome>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<(), Error> {
        let named = named_as(&work);
        let work = aside::numbered(|| work().into_result());
        self.push(work, named, Location::caller(), Host::named)
    }

    /// Submits a function that computes and does not block, and returns its future value.
    ///
    /// A panic fails the stream and is the future's error.
    ///
    /// # Errors
    /// A device error if the runtime has shut down or the stream was inherited by a fork.
    #[track_caller]
    pub fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Future<T>, Error> {
        let named = named_as(&work);
        let (value, work) = Value::of(work);
        self.push_for(value, work, named, Location::caller(), Native::named)
    }

    /// Submits a function that may block, and returns its future value.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    #[track_caller]
    pub fn call_host<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Future<T>, Error> {
        let named = named_as(&work);
        let (value, work) = Value::of(work);
        let work = aside::numbered(work);
        self.push_for(value, work, named, Location::caller(), Host::named)
    }

    /// Submits `work` as the operation that `make` makes of it.
    fn push<W: FnOnce() -> Result<(), Reason>, N, O: Operation>(
        &self,
        work: W,
        named: Named<N>,
        site: &'static Location<'static>,
        make: impl FnOnce(W, Named<N>, Option<&'static Location<'static>>) -> O,
    ) -> Result<(), Error> {
        if self.is_default() {
            return inline::submit(self, type_name::<N>(), site, work);
        }
        let pushed = self.strand().push(make(work, named, Some(site)));
        pushed.map(drop).map_err(refused)
    }

    /// As [`push`](Self::push), for `work` that leaves a value.
    fn push_for<T: Send + 'static, W: FnOnce() -> Result<(), Reason>, N, O: Operation>(
        &self,
        value: Arc<Value<T>>,
        work: W,
        named: Named<N>,
        site: &'static Location<'static>,
        make: impl FnOnce(W, Named<N>, Option<&'static Location<'static>>) -> O,
    ) -> Result<Future<T>, Error> {
        if self.is_default() {
            let ran = inline::run(self, type_name::<N>(), site, work)?;
            return Ok(Future::of_ran(self.clone(), ran, value));
        }
        let pushed = self.strand().push_at(make(work, named, Some(site)));
        Ok(Future::new(self.clone(), pushed.map_err(refused)?, value))
    }

    /// Marks what was submitted so far. Costs no operation.
    #[must_use]
    pub fn record_event(&self) -> Event {
        Event::new(self.clone(), self.strand().point(), None)
    }

    /// As [`record_event`](Self::record_event), and notes the time at which the mark is reached.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub fn record_timed_event(&self) -> Result<Event, Error> {
        let stamp = Stamp::new();
        let point = if self.is_default() && self.strand().inside().is_some() {
            stamp.set();
            self.strand().point()
        } else {
            self.strand().push_at(stamp.mark()).map_err(refused)?
        };
        Ok(Event::new(self.clone(), point, Some(stamp)))
    }

    /// Makes what is submitted to this stream from here on wait for `event`, on whatever stream or
    /// device that was recorded. Blocks nobody.
    ///
    /// If the event covers a failure, this stream fails with the same origin.
    ///
    /// # Errors
    /// As for [`call`](Self::call). Inside the default stream's own work the call itself waits, and
    /// returns what that wait returns.
    pub fn wait_event(&self, event: &Event) -> Result<(), Error> {
        inline::wait_for(self, event.point())
    }

    /// Makes what is submitted to this stream from here on wait for what was submitted to `other`
    /// so far.
    ///
    /// # Errors
    /// As for [`wait_event`](Self::wait_event).
    pub fn wait_stream(&self, other: &Self) -> Result<(), Error> {
        wait::admit(other.strand())?;
        inline::wait_for(self, &other.strand().point())
    }

    /// Whether nothing submitted is unfinished. A hint, not a barrier; never blocks.
    #[must_use]
    pub fn query_idle(&self) -> bool {
        self.pending() == 0
    }

    /// How many operations are submitted and unfinished, waits for events included.
    #[must_use]
    pub fn pending(&self) -> u64 {
        // In a forked child nothing of an inherited stream will ever run.
        if self.strand().is_inherited() {
            0
        } else {
            self.strand().pending()
        }
    }

    /// Blocks until all that was submitted before the call is complete.
    ///
    /// # Errors
    /// The failure of the work, which is acknowledged by that; a deadlock if this is called inside
    /// work that would wait for itself; a device error if the stream was inherited by a fork.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.settle(None)
    }

    /// As [`synchronize`](Self::synchronize), for at most `timeout`; zero polls.
    ///
    /// # Errors
    /// As for [`synchronize`](Self::synchronize); a timeout if work is still unfinished then.
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.settle(Instant::now().checked_add(timeout))
    }

    fn settle(&self, deadline: Option<Instant>) -> Result<(), Error> {
        wait::admit(self.strand())?;
        let point = self.strand().point();
        wait::until(&point, deadline)?;
        Settled::acknowledging(&point)
    }
}

/// The function whose name an operation bears in a trace.
type Named<N> = PhantomData<fn() -> N>;

fn named_as<W>(_work: &W) -> Named<W> {
    PhantomData
}

fn no_native_streams(device: Device) -> Error {
    Error::unsupported(format!(
        "{device} has no native streams: a stream on it exists in this runtime only. \
         Use one that this runtime created, and order it against other libraries with events"
    ))
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.strand.is_inherited() {
            // The parent's threads may have held its locks at the fork: it stays as it is.
            let _ = ManuallyDrop::new(self.strand.clone());
        } else {
            if let Some(runtime) = started() {
                runtime.roster.remove(self.listed_at);
            }
            tracing::debug!(
                stream = self.strand.name(),
                "the last handle of a stream is gone"
            );
            self.strand.orphan();
        }
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.strand(), other.strand())
    }
}

impl Eq for Stream {}

impl std::hash::Hash for Stream {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(self.strand()).hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?} on {})", self.name(), self.device())
    }
}

/// An `await` of a stream: [`Stream::synchronize`] without a thread that waits.
#[derive(Debug)]
pub struct StreamWait {
    /// A handle: as long as it lives, the failure can be acknowledged.
    stream: Stream,
    /// `None` if the stream was inherited by a fork.
    wait: Option<AsyncWait>,
}

impl std::future::Future for StreamWait {
    type Output = Result<(), Error>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let admitted = wait::admit(self.stream.strand());
        match (&mut self.wait, admitted) {
            (Some(wait), Ok(())) => std::pin::Pin::new(&mut *wait)
                .poll(context)
                .map(|()| Settled::acknowledging(wait.point())),
            (_, refused) => std::task::Poll::Ready(refused),
        }
    }
}

impl IntoFuture for &Stream {
    type Output = Result<(), Error>;
    type IntoFuture = StreamWait;

    fn into_future(self) -> StreamWait {
        self.clone().into_future()
    }
}

impl IntoFuture for Stream {
    type Output = Result<(), Error>;
    type IntoFuture = StreamWait;

    fn into_future(self) -> StreamWait {
        let admitted = wait::admit(self.strand()).is_ok();
        let wait = admitted.then(|| AsyncWait::new(self.strand().point()));
        StreamWait { stream: self, wait }
    }
}
