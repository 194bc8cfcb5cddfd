//! Live counters: what streams, threads and memory are doing.

use std::fmt;
use std::time::Duration;

use crate::device::Device;
use crate::pool::MemoryStats;
use crate::runtime::started;
use crate::stream::Stream;

/// What a stream has done so far, each figure as of a moment ago.
///
/// Every operation that was submitted is queued, running, completed, failed or skipped. Waits for events
/// and other streams count as operations, as they do in [`Stream::pending`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// The name of the stream.
    pub name: String,
    /// The device that it runs on.
    pub device: Device,
    /// Operations submitted since the stream was made.
    pub submitted: u64,
    /// Operations that wait: for those before them, for what they depend on, or for a thread.
    pub queued: u64,
    /// Operations that a thread is at: none or one.
    pub running: u64,
    /// Operations that ran to their end.
    pub completed: u64,
    /// Operations that failed the stream.
    pub failed: u64,
    /// Operations that were skipped: behind a failure until that was acknowledged, after one that
    /// they waited for, or because the runtime shut down.
    pub skipped: u64,
    /// For how long threads were at its operations, markers and waits aside. An operation that waits
    /// inside counts as busy.
    pub busy: Duration,
    /// How many operations were queued or running at most. Of more than 16, the most may have been
    /// up to a sixteenth more.
    pub deepest_queue: u64,
}

/// What all streams that have a handle are doing, and what they do it with.
///
/// Prints as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The streams, default streams among them.
    pub streams: Vec<StreamStats>,
    /// The memory of each device.
    pub memory: Vec<(Device, MemoryStats)>,
    /// Threads that run native work.
    pub workers: usize,
    /// Threads that run functions that may block.
    pub host_threads: usize,
}

/// What all streams are doing. Starts nothing: before the first stream is made, there is none.
///
/// # Examples
///
/// ```
/// use clika_runtime::{Device, Stream};
///
/// let stream = Stream::named(Device::cpu(), "decode")?;
/// stream.submit(|| ())?;
/// stream.synchronize()?;
/// let stats = clika_runtime::stats();
/// let decode = stats.streams.iter().find(|stream| stream.name == "decode");
/// assert!(decode.is_some_and(|decode| decode.completed == 1));
/// println!("{stats}");
/// # Ok::<(), clika_runtime::Error>(())
/// ```
#[must_use]
pub fn stats() -> Stats {
    let Some(runtime) = started() else {
        return Stats::default();
    };
    let [workers, host, foreign] = runtime.executor.threads();
    Stats {
        streams: runtime.streams().iter().map(Stream::stats).collect(),
        memory: vec![(Device::cpu(), runtime.pool.stats())],
        workers,
        host_threads: host + foreign,
    }
}

impl Stream {
    /// What it has done so far. Never waits for work; cheap enough to be called often.
    ///
    /// In a forked child, an inherited stream counts nothing as submitted.
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Device, Stream};
    ///
    /// let stream = Stream::create(Device::cpu())?;
    /// stream.submit(|| "one".parse::<u32>().map(drop))?;
    /// stream.submit(|| ())?;
    /// assert!(stream.synchronize().is_err());
    /// let stats = stream.stats();
    /// assert_eq!((stats.completed, stats.failed, stats.skipped), (0, 1, 1));
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> StreamStats {
        let stats = self.strand().stats();
        let pending = stats.submitted - stats.ended;
        let running = u64::from(stats.is_running).min(pending);
        let failed = stats.failed.min(stats.ended);
        let skipped = stats.skipped.min(stats.ended - failed);
        StreamStats {
            name: self.name(),
            device: self.device(),
            submitted: stats.submitted,
            queued: pending - running,
            running,
            completed: stats.ended - failed - skipped,
            failed,
            skipped,
            busy: stats.busy,
            deepest_queue: stats.deepest,
        }
    }
}

impl StreamStats {
    /// What [`cells`](Self::cells) tells.
    const HEADINGS: [&str; 10] = [
        "stream",
        "device",
        "queued",
        "running",
        "completed",
        "failed",
        "skipped",
        "busy s",
        "deepest",
        "submitted",
    ];

    fn cells(&self) -> [String; 10] {
        [
            self.name.clone(),
            self.device.to_string(),
            self.queued.to_string(),
            self.running.to_string(),
            self.completed.to_string(),
            self.failed.to_string(),
            self.skipped.to_string(),
            format!("{:.3}", self.busy.as_secs_f64()),
            self.deepest_queue.to_string(),
            self.submitted.to_string(),
        ]
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = StreamStats::HEADINGS.map(String::from);
        let rows: Vec<_> = [headings]
            .into_iter()
            .chain(self.streams.iter().map(StreamStats::cells))
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [_; 10] = std::array::from_fn(|column| width(column).unwrap_or(0));
        for row in &rows {
            let [name, figures @ ..] = row;
            write!(f, "{name:<0$}", widths[0])?;
            for (figure, width) in figures.iter().zip(&widths[1..]) {
                write!(f, "  {figure:>width$}")?;
            }
            writeln!(f)?;
        }
        for (device, memory) in &self.memory {
            writeln!(
                f,
                "memory of {device}: {} bytes in use, {} kept for reuse, {} at most",
                memory.live_bytes, memory.cached_bytes, memory.peak_bytes
            )?;
        }
        write!(
            f,
            "threads: {} native, {} host",
            self.workers, self.host_threads
        )
    }
}
