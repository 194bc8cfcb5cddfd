//! Live counters: what streams, threads and memory are doing.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::device::Device;
use crate::exceptions::raised;
use crate::html::{self, Cell, bytes, figure, text};
use crate::stream::device_of;

/// What a stream has done so far, each figure as of a moment ago.
///
/// Every operation that was submitted is queued, running, completed, failed or skipped. Waits for
/// events and other streams count as operations, as they do in `Stream.pending`. Get one from
/// `Stream.stats` or `stats`; it does not change any more.
///
/// Examples
/// --------
/// >>> from clika_runtime import Device, Stream
/// >>> stream = Stream.create(Device.parse("cpu"), name="sums")
/// >>> stream.submit(sum, [1, 2, 3]).result()
/// 6
/// >>> stream.synchronize()
/// >>> stats = stream.stats()
/// >>> stats.completed, stats.queued, stats.deepest_queue
/// (1, 0, 1)
#[pyclass(frozen, eq, module = "clika_runtime._core")]
#[derive(PartialEq, Clone)]
pub(crate) struct StreamStats(clika_runtime::StreamStats);

#[pymethods]
impl StreamStats {
    /// The name of the stream.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The device that the stream runs on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device)
    }

    /// Operations submitted since the stream was made.
    #[getter]
    fn submitted(&self) -> u64 {
        self.0.submitted
    }

    /// Operations that wait: for those before them, for what they depend on, or for a thread.
    #[getter]
    fn queued(&self) -> u64 {
        self.0.queued
    }

    /// Operations that a thread is at: none or one.
    #[getter]
    fn running(&self) -> u64 {
        self.0.running
    }

    /// Operations that ran to their end.
    ///
    /// A function whose exception stays with its own future, as that of `Stream.as_executor` does,
    /// is among them.
    #[getter]
    fn completed(&self) -> u64 {
        self.0.completed
    }

    /// Operations that failed the stream.
    #[getter]
    fn failed(&self) -> u64 {
        self.0.failed
    }

    /// Operations that were skipped.
    ///
    /// They were behind a failure that nobody had acknowledged, waited for one that failed, or the
    /// runtime shut down.
    #[getter]
    fn skipped(&self) -> u64 {
        self.0.skipped
    }

    /// For how many seconds threads were at its operations, markers and waits aside.
    ///
    /// A function that waits inside counts as busy.
    #[getter]
    fn busy_time(&self) -> f64 {
        self.0.busy.as_secs_f64()
    }

    /// How many operations were queued or running at most.
    ///
    /// Of more than 16, the most may have been up to a sixteenth more.
    #[getter]
    fn deepest_queue(&self) -> u64 {
        self.0.deepest_queue
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.0.name.as_str().into_pyobject(py)?.repr()?;
        Ok(format!(
            "StreamStats(name={name}, device=Device('{}'), submitted={}, queued={}, running={}, \
             completed={}, failed={}, skipped={}, busy_time={:.6}, deepest_queue={})",
            self.0.device,
            self.0.submitted,
            self.0.queued,
            self.0.running,
            self.0.completed,
            self.0.failed,
            self.0.skipped,
            self.0.busy.as_secs_f64(),
            self.0.deepest_queue,
        ))
    }

    fn _repr_html_(&self) -> String {
        self.html()
    }
}

impl StreamStats {
    const HEADINGS: [&str; 10] = [
        "stream",
        "device",
        "queued",
        "running",
        "completed",
        "failed",
        "skipped",
        "busy, s",
        "deepest",
        "submitted",
    ];

    pub(crate) fn of(stream: &clika_runtime::Stream) -> Self {
        Self(stream.stats())
    }

    pub(crate) fn html(&self) -> String {
        html::table(&Self::HEADINGS, &[self.cells()])
    }

    fn cells(&self) -> Vec<Cell> {
        let stats = &self.0;
        vec![
            text(&stats.name),
            text(stats.device),
            figure(stats.queued),
            figure(stats.running),
            figure(stats.completed),
            figure(stats.failed),
            figure(stats.skipped),
            figure(format!("{:.3}", stats.busy.as_secs_f64())),
            figure(stats.deepest_queue),
            figure(stats.submitted),
        ]
    }
}

/// What a device's memory pool holds, as of one moment.
///
/// Sizes are in bytes, and those of the blocks behind the buffers: up to a quarter above what the
/// buffers asked for. Get one from `memory_stats` or `stats`; it does not change any more.
///
/// Examples
/// --------
/// >>> from clika_runtime import Buffer, Device, memory_stats
/// >>> buffer = Buffer.from_data(bytes(1000))
/// >>> stats = memory_stats(buffer.device)
/// >>> 1000 <= stats.live_bytes <= stats.peak_bytes
/// True
#[pyclass(frozen, eq, module = "clika_runtime._core")]
#[derive(PartialEq, Clone)]
pub(crate) struct MemoryStats(clika_runtime::MemoryStats);

#[pymethods]
impl MemoryStats {
    /// Bytes in use by buffers and by copies under way.
    #[getter]
    fn live_bytes(&self) -> usize {
        self.0.live_bytes
    }

    /// Bytes kept for reuse.
    #[getter]
    fn cached_bytes(&self) -> usize {
        self.0.cached_bytes
    }

    /// The most that was in use at once, in bytes.
    #[getter]
    fn peak_bytes(&self) -> usize {
        self.0.peak_bytes
    }

    /// Blocks in use.
    #[getter]
    fn live_blocks(&self) -> usize {
        self.0.live_blocks
    }

    /// Blocks handed out since the start.
    #[getter]
    fn allocations(&self) -> u64 {
        self.0.allocations
    }

    /// How many of the blocks handed out were reused.
    #[getter]
    fn reused(&self) -> u64 {
        self.0.reused
    }

    fn __repr__(&self) -> String {
        let stats = &self.0;
        format!(
            "MemoryStats(live_bytes={}, cached_bytes={}, peak_bytes={}, live_blocks={}, \
             allocations={}, reused={})",
            stats.live_bytes,
            stats.cached_bytes,
            stats.peak_bytes,
            stats.live_blocks,
            stats.allocations,
            stats.reused,
        )
    }

    fn _repr_html_(&self) -> String {
        html::table(&Self::HEADINGS, &[self.cells()])
    }
}

impl MemoryStats {
    const HEADINGS: [&str; 6] = [
        "in use",
        "kept for reuse",
        "in use at most",
        "blocks",
        "handed out",
        "reused",
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            bytes(self.0.live_bytes as u64),
            bytes(self.0.cached_bytes as u64),
            bytes(self.0.peak_bytes as u64),
            figure(self.0.live_blocks),
            figure(self.0.allocations),
            figure(self.0.reused),
        ]
    }
}

/// What all streams that have a handle are doing, and what they do it with.
///
/// Prints as a table, in a notebook too. Get one from `stats`; it does not change any more.
///
/// Examples
/// --------
/// >>> from clika_runtime import Device, Stream, stats
/// >>> stream = Stream.create(Device.parse("cpu"), name="decode")
/// >>> [told.queued for told in stats().streams if told.name == "decode"]
/// [0]
#[pyclass(frozen, eq, module = "clika_runtime._core")]
#[derive(PartialEq)]
pub(crate) struct Stats(clika_runtime::Stats);

#[pymethods]
impl Stats {
    /// The streams, default streams among them, as a tuple of StreamStats.
    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.streams.iter().cloned().map(StreamStats))
    }

    /// The memory of each device, as a dictionary of MemoryStats by Device.
    #[getter]
    fn memory(&self) -> std::collections::HashMap<Device, MemoryStats> {
        let each = self.0.memory.iter();
        each.map(|(device, stats)| (Device(*device), MemoryStats(*stats)))
            .collect()
    }

    /// Threads that run native work.
    #[getter]
    fn workers(&self) -> usize {
        self.0.workers
    }

    /// Threads that run functions, which may block.
    #[getter]
    fn host_threads(&self) -> usize {
        self.0.host_threads
    }

    fn __repr__(&self) -> String {
        format!(
            "<Stats of {} streams, {} workers and {} host threads>",
            self.0.streams.len(),
            self.0.workers,
            self.0.host_threads
        )
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn _repr_html_(&self) -> String {
        let streams = self.0.streams.iter().cloned().map(StreamStats);
        let streams: Vec<_> = streams.map(|stats| stats.cells()).collect();
        let memory = self.0.memory.iter().map(|(device, stats)| {
            let mut cells = vec![text(device)];
            cells.extend(MemoryStats(*stats).cells());
            cells
        });
        let memory: Vec<_> = memory.collect();
        let headings: Vec<_> = ["device"]
            .into_iter()
            .chain(MemoryStats::HEADINGS)
            .collect();
        format!(
            "{}{}<p>{} workers, {} host threads</p>",
            html::table(&StreamStats::HEADINGS, &streams),
            html::table(&headings, &memory),
            self.0.workers,
            self.0.host_threads,
        )
    }
}

/// What all streams are doing.
///
/// Starts nothing: before the first stream is made, there is none.
///
/// Returns
/// -------
/// Stats
///     Of every stream that somebody holds, of the memory of each device, and of the threads.
///
/// Examples
/// --------
/// >>> import clika_runtime
/// >>> from clika_runtime import Device, Stream
/// >>> stream = Stream.create(Device.parse("cpu"), name="decode")
/// >>> print(clika_runtime.stats())  # doctest: +ELLIPSIS
/// stream ...
/// decode ...
/// threads: ...
#[pyfunction]
pub(crate) fn stats() -> Stats {
    Stats(clika_runtime::stats())
}

/// What the memory pool of a device holds.
///
/// Parameters
/// ----------
/// device : Device
///
/// Returns
/// -------
/// MemoryStats
///
/// Raises
/// ------
/// InvalidArgumentError
///     If a setting in the environment is bad.
/// DeviceError
///     If the runtime cannot start.
///
/// Examples
/// --------
/// >>> from clika_runtime import memory_stats
/// >>> stats = memory_stats(Device.parse("cpu"))
/// >>> stats.live_bytes <= stats.peak_bytes
/// True
#[pyfunction]
pub(crate) fn memory_stats(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<MemoryStats> {
    let stats = device_of(device)?.memory_stats();
    stats.map(MemoryStats).map_err(|error| raised(py, &error))
}
