//! Streams.

use clika_runtime::foreign;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::context;
use crate::device::Device;
use crate::event::Event;
use crate::exceptions::{failed, invalid_argument, raised};
use crate::failure::exception_of;
use crate::function;
use crate::future::{self, FutureBase, Parts};
use crate::host::{self, Call};
use crate::inline;
use crate::logging;
use crate::number;
use crate::site;
use crate::stats::StreamStats;
use crate::wait::{deadline, reach_in_time};

/// An ordered queue of device work.
///
/// What is submitted runs in order, asynchronously of the host. Streams are independent of each
/// other, and overlap, unless `wait_event` or `wait_stream` says otherwise. Get one from
/// `Stream.create` or `Stream.default_stream`; any thread may use it.
///
/// The first failure of a stream's work stays with it until it is acknowledged: what was submitted
/// behind it is skipped. `synchronize`, ``await stream``, and taking the failed work's own result
/// raise the failure and acknowledge it by that.
///
/// Examples
/// --------
/// >>> from clika_runtime import Device, Stream
/// >>> stream = Stream.create(Device.parse("cpu"), name="sums")
/// >>> total = stream.submit(sum, [1, 2, 3])
/// >>> total.result()
/// 6
/// >>> stream.synchronize()
#[pyclass(frozen, subclass, weakref, module = "clika_runtime._core")]
pub(crate) struct Stream(pub(crate) clika_runtime::Stream);

impl Stream {
    /// Submits a call to a created stream.
    fn enqueue<'py>(
        slf: &Bound<'py, Self>,
        call: Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
        isolated: bool,
    ) -> PyResult<Bound<'py, FutureBase>> {
        let py = slf.py();
        let buffers = function::arguments(&call, keywords);
        let call = checked_call(call, keywords)?;
        host::ensure(py)?;
        let site = site::of_caller(py);
        let parts = Parts {
            stream: slf.clone().unbind(),
            call: call.unbind(),
            site,
            isolated,
            buffers,
        };
        let future = future::make(py, parts)?;
        let stream = &slf.get().0;
        let work = Call::Work(future.clone().unbind());
        let push = |buffers: &foreign::Arguments| buffers.push(stream, work);
        let pushed = future.get().with_buffers(py, push);
        let (n, start) = pushed.map_err(|error| raised(py, &error))?;
        drop(start);
        future.get().submitted(n);
        Ok(future)
    }

    pub(crate) fn wait_for(&self, py: Python<'_>, point: &foreign::Point) -> PyResult<()> {
        let strand = foreign::strand(&self.0);
        if strand.is_inline() && strand.inside().is_some() {
            // Part of the enclosing work: what follows in that must not run before.
            reach_in_time(py, point, None)?;
            return point
                .failure()
                .map_or(Ok(()), |failure| Err(failed(py, &failure)));
        }
        strand
            .wait_for(point)
            .map_err(|refused| raised(py, &foreign::refused(refused)))
    }
}

/// The function and its arguments as one tuple, with the keywords bound.
pub(crate) fn checked_call<'py>(
    call: Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let Ok(function) = call.get_borrowed_item(0) else {
        return Err(PyTypeError::new_err(
            "submit() needs a function: submit(fn, *args, **kwargs)",
        ));
    };
    if !function.is_callable() {
        return Err(PyTypeError::new_err(format!(
            "submit() takes a function and its arguments, but {} is not callable: pass the \
             function itself, not its result",
            function.get_type().name()?
        )));
    }
    host::with_keywords(call, keywords)
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(*args, **kwargs)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        inline::constructing().ok_or_else(|| {
            PyTypeError::new_err(
                "a Stream is not constructed: use Stream.create(device) for a fresh stream or \
                 Stream.default_stream(device) for the default one",
            )
        })
    }

    /// A fresh stream: never the default one, never shared.
    ///
    /// Submission is pipelined: a call returns without waiting for the work, and independent
    /// streams overlap. A stream has no thread of its own; ten thousand of them are fine.
    ///
    /// Parameters
    /// ----------
    /// device : Device
    ///     The device that it runs on.
    /// name : str, optional
    ///     For errors and timelines. One is made up if none is given.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If a setting in the environment is bad.
    /// DeviceError
    ///     If the runtime has shut down or cannot start.
    ///
    /// Examples
    /// --------
    /// >>> Stream.create(Device.parse("cpu"), name="decode").name
    /// 'decode'
    #[staticmethod]
    #[pyo3(signature = (device, *, name=None))]
    fn create(py: Python<'_>, device: &Bound<'_, PyAny>, name: Option<&str>) -> PyResult<Self> {
        let device = device_of(device)?;
        logging::look_at_level(py)?;
        let stream = match name {
            Some(name) => clika_runtime::Stream::named(device, name),
            None => clika_runtime::Stream::create(device),
        };
        stream.map(Self).map_err(|error| raised(py, &error))
    }

    /// The one default stream of a device: always valid, equal on every call and from every thread.
    ///
    /// Its work is dispatched on the calling thread: on the CPU it has run when the call returns,
    /// after waiting for what it depends on. Calls from several threads take turns. Work submitted
    /// from inside its own work is part of the enclosing work and runs at once.
    ///
    /// Parameters
    /// ----------
    /// device : Device
    ///
    /// Examples
    /// --------
    /// >>> default = Stream.default_stream(Device.parse("cpu"))
    /// >>> default.is_default()
    /// True
    /// >>> default == Stream.default_stream(Device.parse("cpu"))
    /// True
    #[staticmethod]
    fn default_stream<'py>(
        py: Python<'py>,
        device: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        inline::default_stream(py, device_of(device)?)
    }

    /// Adopt a native stream that you own. The CPU and Vulkan have none.
    ///
    /// Work placed on it runs on that very native stream. The runtime never destroys it; keep it
    /// alive until the process ends.
    ///
    /// Parameters
    /// ----------
    /// device : Device
    ///     The device of the native stream.
    /// native_handle : int
    ///     On CUDA the integer of a ``cudaStream_t``, such as
    ///     ``torch.cuda.Stream().cuda_stream``, or an object with ``__cuda_stream__``.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     For 0, 1 and 2, which name CUDA's default streams, and numbers that are no handle.
    /// UnsupportedError
    ///     If the device has no native streams.
    ///
    /// Examples
    /// --------
    /// >>> Stream.from_native_handle(Device.parse("cpu"), 0x7F00)
    /// Traceback (most recent call last):
    ///     ...
    /// clika_runtime._core.UnsupportedError: cpu:0 has no native streams...
    #[staticmethod]
    fn from_native_handle(
        py: Python<'_>,
        device: &Bound<'_, PyAny>,
        native_handle: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let handle = handle_of(native_handle)?;
        let device = device_of(device)?;
        clika_runtime::Stream::from_native_handle(device, handle)
            .map(Self)
            .map_err(|error| raised(py, &error))
    }

    /// The device that this stream runs on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device())
    }

    /// Its name.
    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }

    /// The native stream under this one, as an integer, to lend to other libraries.
    ///
    /// Raises
    /// ------
    /// UnsupportedError
    ///     Where there is none: on the CPU.
    #[getter]
    fn native_handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.native_handle().map_err(|error| raised(py, &error))
    }

    /// Whether this is the default stream of its device.
    fn is_default(&self) -> bool {
        self.0.is_default()
    }

    /// Whether nothing submitted is unfinished. A hint, not a barrier: it never blocks and never
    /// raises for work that is unfinished or failed.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> stream.query_idle()
    /// True
    fn query_idle(&self) -> bool {
        self.0.query_idle()
    }

    /// How many operations are submitted and unfinished, waits for events included.
    #[getter]
    fn pending(&self) -> u64 {
        self.0.pending()
    }

    /// What the stream has done so far, each figure as of a moment ago.
    ///
    /// Never waits for work; cheap enough to be called often.
    ///
    /// Returns
    /// -------
    /// StreamStats
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> failing, skipped = stream.submit(int, "one"), stream.submit(int, "1")
    /// >>> failing.exception()
    /// ValueError("invalid literal for int() with base 10: 'one'")
    /// >>> stream.synchronize()
    /// >>> stats = stream.stats()
    /// >>> stats.completed, stats.failed, stats.skipped
    /// (0, 1, 1)
    fn stats(&self) -> StreamStats {
        StreamStats::of(&self.0)
    }

    /// Blocks until all that was submitted before the call is complete.
    ///
    /// Parameters
    /// ----------
    /// timeout : float, optional
    ///     Seconds to wait at most. None or infinity waits for ever, 0 polls.
    ///
    /// Raises
    /// ------
    /// TimeoutError
    ///     If work is unfinished then. It goes on.
    /// DeadlockError
    ///     If this is called inside work that would wait for itself.
    /// BaseException
    ///     What failed work raised. The failure is acknowledged by that: what is submitted from
    ///     then on runs.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> future = stream.submit(print, "hello")
    /// >>> stream.synchronize()
    /// hello
    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        let strand = foreign::strand(&self.0);
        if strand.is_inherited() {
            return Err(raised(py, &foreign::refused(foreign::Refused::Inherited)));
        }
        let point = strand.point();
        reach_in_time(py, &point, deadline)?;
        settle(py, &point)
    }

    /// Runs a function in stream order, and returns its future.
    ///
    /// The function runs on a thread of the host lane, where it may block; the call does not wait
    /// for it. It sees none of the caller's context variables.
    ///
    /// Parameters
    /// ----------
    /// fn : callable
    ///     The function.
    /// *args, **kwargs
    ///     Its arguments, captured now. They are let go before the work counts as complete.
    ///
    /// Returns
    /// -------
    /// Future
    ///     What the function returns or raises.
    ///
    /// Raises
    /// ------
    /// DeviceError
    ///     If the runtime has shut down, or the stream belongs to the parent process.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> stream.submit(sorted, [3, 1, 2], reverse=True).result()
    /// [3, 2, 1]
    #[pyo3(signature = (*args, **kwargs), text_signature = "($self, fn, /, *args, **kwargs)")]
    fn submit<'py>(
        slf: &Bound<'py, Self>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, FutureBase>> {
        Self::enqueue(slf, args, kwargs, false)
    }

    /// As `submit`, but a failure stays with its future: for `as_executor`.
    #[pyo3(signature = (*args, **kwargs))]
    fn _submit_isolated<'py>(
        slf: &Bound<'py, Self>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, FutureBase>> {
        Self::enqueue(slf, args, kwargs, true)
    }

    /// For the default stream: see `_host.DefaultStream`.
    fn _enter<'py>(
        slf: &Bound<'py, Self>,
        args: Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        isolated: bool,
    ) -> PyResult<(Bound<'py, FutureBase>, Option<inline::Visit>)> {
        inline::enter(slf, args, kwargs, isolated)
    }

    /// Marks what was submitted so far.
    ///
    /// Parameters
    /// ----------
    /// timing : bool, default False
    ///     Whether the time is noted at which the mark is reached, for `Event.elapsed_time`.
    ///
    /// Returns
    /// -------
    /// Event
    #[pyo3(signature = (timing=false))]
    fn record_event(slf: &Bound<'_, Self>, timing: bool) -> PyResult<Event> {
        let (py, stream) = (slf.py(), &slf.get().0);
        foreign::strand(stream)
            .admit()
            .map_err(|refused| raised(py, &foreign::refused(refused)))?;
        let event = if timing {
            stream
                .record_timed_event()
                .map_err(|error| raised(py, &error))?
        } else {
            stream.record_event()
        };
        Ok(Event::new(slf.clone().unbind(), event))
    }

    /// Makes what is submitted to this stream from here on wait for an event, of whatever stream or
    /// device. Blocks nobody.
    ///
    /// If the event covers a failure, this stream fails with the same origin.
    ///
    /// Parameters
    /// ----------
    /// event : Event
    ///
    /// Examples
    /// --------
    /// >>> producer, consumer = (Stream.create(Device.parse("cpu")) for _ in range(2))
    /// >>> first = producer.submit(print, "first")
    /// >>> consumer.wait_event(producer.record_event())
    /// >>> second = consumer.submit(print, "second")
    /// >>> consumer.synchronize()
    /// first
    /// second
    fn wait_event(&self, py: Python<'_>, event: &Event) -> PyResult<()> {
        self.wait_for(py, foreign::point(&event.event))
    }

    /// Makes what is submitted to this stream from here on wait for what was submitted to another
    /// one so far. Blocks nobody.
    ///
    /// Parameters
    /// ----------
    /// other : Stream
    ///
    /// Examples
    /// --------
    /// >>> producer, consumer = (Stream.create(Device.parse("cpu")) for _ in range(2))
    /// >>> first = producer.submit(print, "first")
    /// >>> consumer.wait_stream(producer)
    /// >>> second = consumer.submit(print, "second")
    /// >>> consumer.synchronize()
    /// first
    /// second
    fn wait_stream(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        let strand = foreign::strand(&other.0);
        strand
            .admit()
            .map_err(|refused| raised(py, &foreign::refused(refused)))?;
        self.wait_for(py, &strand.point())
    }

    /// A `concurrent.futures.Executor` over this stream, with that convention for errors: an
    /// exception stays with its own future, and later work goes on.
    ///
    /// Shutting the executor down leaves the stream as it is.
    ///
    /// Examples
    /// --------
    /// >>> stream = Stream.create(Device.parse("cpu"))
    /// >>> with stream.as_executor() as executor:
    /// ...     list(executor.map(abs, [-1, 2, -3]))
    /// [1, 2, 3]
    fn as_executor<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("clika_runtime._executor")?;
        module.getattr("StreamExecutor")?.call1((slf,))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        context::enter(slf)?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        context::leave(slf)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        host::awaiting(slf.py(), "stream", slf.as_any())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        foreign::strand(&self.0).id()
    }

    fn __repr__(&self) -> String {
        format!("<Stream '{}' on {}>", self.0.name(), self.0.device())
    }

    fn _repr_html_(&self) -> String {
        StreamStats::of(&self.0).html()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Stream cannot be pickled or copied: it is a queue of this process. Pickle its \
             device, and call Stream.create there",
        ))
    }

    /// A failure that only this stream holds leads to frames, and from there maybe back here.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(strand) = foreign::sole_strand(&self.0) else {
            return Ok(());
        };
        let visited = strand.with_sole_failure(|failure| {
            exception_of(failure).map(|exception| visit.call(exception))
        });
        visited.flatten().unwrap_or(Ok(()))
    }

    /// The failure is unreachable: nobody can acknowledge it, so it is reported, and goes.
    fn __clear__(&self) {
        let Some(strand) = foreign::sole_strand(&self.0) else {
            return;
        };
        if strand.with_sole_failure(|_| ()).is_some() {
            strand.orphan();
            strand.acknowledge_if(|_| true);
        }
    }
}

/// Raises the failure that a reached point covers, which acknowledges it.
pub(crate) fn settle(py: Python<'_>, point: &foreign::Point) -> PyResult<()> {
    match point.failure() {
        None => Ok(()),
        Some(failure) => {
            point.acknowledge();
            Err(failed(py, &failure))
        }
    }
}

/// The device that an argument is.
pub(crate) fn device_of(device: &Bound<'_, PyAny>) -> PyResult<clika_runtime::Device> {
    match device.cast::<Device>() {
        Ok(device) => Ok(device.get().0),
        Err(_) => Err(PyTypeError::new_err(format!(
            "device must be a Device, such as Device.parse('cpu'), not {}",
            device.get_type().name()?
        ))),
    }
}

/// The handle in what `__cuda_stream__` returns: a version and a handle.
fn handle_from<'py>(answer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if let Ok((version, handle)) = answer.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()
        && let Some(version) = number::integer(&version)?
        && version.extract::<u64>().is_ok()
    {
        return Ok(handle);
    }
    Err(PyTypeError::new_err(
        "native_handle must have a __cuda_stream__ that returns a version and a handle, as two \
         integers",
    ))
}

/// The native handle that an argument is: an integer, or an object that speaks `__cuda_stream__`.
fn handle_of(native_handle: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = native_handle.py();
    let number = match native_handle.getattr_opt("__cuda_stream__")? {
        Some(protocol) => handle_from(&protocol.call0()?)?,
        None => native_handle.clone(),
    };
    if !number.is_instance_of::<PyInt>() || number.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!(
            "native_handle must be the integer of a native stream, such as \
             torch.cuda.Stream().cuda_stream, or an object with __cuda_stream__, not {}",
            number.get_type().name()?
        )));
    }
    number.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(py) {
            invalid_argument(
                py,
                format!(
                    "native_handle {number} is no handle: handles have 64 bits and are positive. \
                     Pass the integer of a stream, such as torch.cuda.Stream().cuda_stream"
                ),
            )
        } else {
            error
        }
    })
}
