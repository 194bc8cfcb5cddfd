//! Traces: a file that tells what ran when, for a timeline.
//!
//! The format is the array form of Chrome's trace events, which Perfetto and the browsers' own viewers
//! read: one event in each line, times in microseconds, and no closing bracket needed, so that a process
//! that dies leaves a readable file. One track for each stream:
//! * a slice (`X`) for each operation, from its begin to its end; `args` tell its number `n`, when it was
//!   `submitted`, how long it `waited`, its `worker`, and where they apply its `bytes`, the `site` that
//!   submitted it, its `failure`, and that it was `skipped`. A slice of the category `wait` is the time
//!   for which the stream was parked;
//! * an arrow (`s` to `f`) from what was waited for to what ran next;
//! * counters (`C`) of the operations that are queued, and of the memory pool, looked at now and then.
//!
//! `python/clika_runtime/trace.schema.json` says it all as a JSON schema, and changes with it.
//!
//! # Protocol
//! The executor's log collects entries, and a thread of the trace's own takes them out every few
//! milliseconds; whoever fills the log takes them out himself and so is held back, and memory stays
//! bounded. Entries are written in the order of the log, under the writer's lock, which is taken before
//! the log's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clika_executor::sync::Mutex;
use clika_executor::trace::{Arrow, Entry, Log, Slice};
use clika_executor::{Failure, generation, with_signals_blocked};

use crate::device::Device;
use crate::error::Error;
use crate::lines::Lines;
use crate::pool::MemoryStats;
use crate::runtime::{Runtime, runtime, started};
use crate::wait;

/// Writes a trace until it is dropped or [stopped](Trace::stop).
///
/// Operations that end in that time are in the file; one that has not ended by then is not.
#[must_use = "the trace ends when this is dropped"]
pub struct Trace {
    /// Which of this process's traces it is.
    number: u64,
}

/// Begins to write a trace of all streams to a file, which is made anew. There is one trace at a time.
///
/// Open the file in Perfetto or in a browser's own viewer, or make a page of it by `clikart timeline`.
/// What is in it, a JSON schema says: `trace.schema.json`, which lies in the Python package.
///
/// # Errors
/// Invalid argument if the file cannot be written, if another process writes to it, or if another trace
/// is being written; a device error if the runtime cannot be started.
///
/// # Examples
///
/// ```
/// use clika_runtime::{Device, Stream};
///
/// # let path = std::env::temp_dir().join(format!("clika-trace-doc-{}.json", std::process::id()));
/// let trace = clika_runtime::trace(&path)?;
/// let stream = Stream::create(Device::cpu())?;
/// let sum = stream.call(|| (0..1000_u64).sum::<u64>())?;
/// assert_eq!(sum.wait()?, 499_500);
/// stream.synchronize()?;
/// trace.stop()?;
/// assert!(std::fs::read_to_string(&path).unwrap().contains("\"cat\":\"native\""));
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), clika_runtime::Error>(())
/// ```
pub fn trace(path: impl AsRef<Path>) -> Result<Trace, Error> {
    let runtime = runtime()?;
    let path = path.as_ref();
    let open = || Ok((path.to_owned(), open(path)?));
    let number = runtime.tracer.start(runtime, open)?;
    Ok(Trace { number })
}

impl Trace {
    /// Ends the trace: the file is complete when this returns.
    ///
    /// # Errors
    /// A device error if the file could not be written to its end.
    pub fn stop(self) -> Result<(), Error> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> Result<(), Error> {
        started().map_or(Ok(()), |runtime| {
            runtime.tracer.stop(runtime, Some(self.number))
        })
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// Ends the trace of this process, if there is one.
///
/// # Errors
/// As for [`Trace::stop`].
pub(crate) fn stop() -> Result<(), Error> {
    match started() {
        Some(runtime) => runtime.tracer.stop(runtime, None),
        None => Ok(()),
    }
}

/// Empties the log of this process.
fn read() {
    if let Some(runtime) = started() {
        runtime.tracer.pump(runtime.executor.log());
    }
}

/// The trace of a runtime, if it is being written.
#[derive(Default)]
pub(crate) struct Tracer {
    writer: Mutex<Option<Writer>>,
    /// Taken first: one begin or end at a time.
    clerk: Mutex<Option<Clerk>>,
}

/// The thread that looks at the log every few milliseconds.
struct Clerk {
    /// Which trace it is of.
    number: u64,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Tracer {
    /// How long the clerk rests between two looks.
    const REST: Duration = Duration::from_millis(10);

    /// Begins the trace that the environment asks for. Where another process does that already, such as
    /// the one that started this one, it is written beside, under a name with this process's number.
    pub(crate) fn start_by_environment(
        &self,
        runtime: &'static Runtime,
        path: &Path,
    ) -> Result<(), Error> {
        let open_any = || {
            if generation() == 0
                && let Ok(file) = open(path)
            {
                return Ok((path.to_owned(), file));
            }
            let own = own_path(path);
            Ok((own.clone(), open(&own)?))
        };
        self.start(runtime, open_any).map(drop)
    }

    /// Begins a trace into the file that `open` gives: the trace's number.
    fn start(
        &self,
        runtime: &'static Runtime,
        open: impl FnOnce() -> Result<(PathBuf, File), Error>,
    ) -> Result<u64, Error> {
        static TRACES: AtomicU64 = AtomicU64::new(0);
        let mut clerk = self.clerk.lock();
        if clerk.is_some() {
            return Err(Error::invalid_argument(
                "a trace is being written already: stop it first. CLIKA_TRACE begins one at the start",
            ));
        }
        let (path, file) = open()?;
        let number = TRACES.fetch_add(1, Ordering::Relaxed);
        let log = runtime.executor.log();
        let shown = path.clone();
        let mut writer = Writer::new(file, path);
        writer.begin(runtime, log.now());
        *self.writer.lock() = Some(writer);
        log.start(read);
        let ends = Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let work = move || {
            while !until.load(Ordering::Acquire) {
                runtime.tracer.look(runtime);
                thread::park_timeout(Self::REST);
            }
        };
        let name = || {
            thread::Builder::new()
                .name("clika-trace".to_owned())
                .spawn(work)
        };
        let thread = with_signals_blocked(name).map_err(|error| {
            log.stop();
            *self.writer.lock() = None;
            Error::device(
                "no thread could be started for the trace",
                Some(Arc::new(error)),
            )
        })?;
        *clerk = Some(Clerk {
            number,
            ends,
            thread,
        });
        stop_at_exit();
        tracing::debug!(path = %shown.display(), "a trace begins");
        Ok(number)
    }

    /// Ends the trace of this number, or whichever there is.
    fn stop(&self, runtime: &Runtime, number: Option<u64>) -> Result<(), Error> {
        let mut clerk = self.clerk.lock();
        let wanted = |clerk: &mut Clerk| number.is_none_or(|number| clerk.number == number);
        let Some(Clerk { ends, thread, .. }) = clerk.take_if(wanted) else {
            return Ok(());
        };
        let log = runtime.executor.log();
        ends.store(true, Ordering::Release);
        thread.thread().unpark();
        let _ = thread.join();
        // The counters as they are at the end.
        self.look(runtime);
        log.stop();
        self.pump(log);
        let writer = self.writer.lock().take();
        let ended = writer.map_or(Ok(()), Writer::end);
        tracing::debug!("the trace ends");
        ended
    }

    /// Writes what the log holds.
    fn pump(&self, log: &Log) {
        let mut writer = self.writer.lock();
        let entries = log.take();
        if let Some(writer) = &mut *writer {
            entries.iter().for_each(|entry| writer.entry(entry));
        }
        drop(writer);
        // A failure may be the last of a user's error, whose drop is the user's code.
        drop(entries);
    }

    /// Writes what the log holds and what the counters show.
    fn look(&self, runtime: &Runtime) {
        let log = runtime.executor.log();
        self.pump(log);
        let strands = log.strands();
        let pending: Vec<_> = strands
            .iter()
            .map(|one| (one.id(), one.pending()))
            .collect();
        let mut writer = self.writer.lock();
        let cut_off = writer.as_mut().and_then(|writer| {
            let now = log.now();
            writer.gone(&pending, now);
            for (strand, pending) in pending {
                writer.queued(strand, pending, now);
            }
            writer.memory(runtime.pool.stats(), now);
            writer.out.flush();
            writer.cut_off()
        });
        drop(writer);
        if let Some(why) = cut_off {
            tracing::warn!("{why}");
        }
    }
}

/// Opens a file to be written by this process alone.
fn open(path: &Path) -> Result<File, Error> {
    let opened = File::options().create(true).append(true).open(path);
    let file = opened.map_err(|error| unwritable(path, &error))?;
    // Where files have no locks, nobody is kept out.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(Error::invalid_argument(format!(
            "the trace file '{}' is being written by another process: choose another",
            path.display()
        )));
    }
    if file.metadata().is_ok_and(|about| about.is_file()) {
        file.set_len(0).map_err(|error| unwritable(path, &error))?;
    }
    Ok(file)
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::invalid_argument(format!(
        "the trace file '{}' cannot be written: {error}",
        path.display()
    ))
}

/// A path like this that no other process has.
fn own_path(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Ends the trace where the process ends without a shutdown.
#[allow(unsafe_code, reason = "one call into the C library")]
fn stop_at_exit() {
    extern "C" fn at_exit() {
        let _ = stop();
    }
    static REGISTERED: Once = Once::new();
    // SAFETY: the handler is a plain function of this library, which is never unloaded.
    REGISTERED.call_once(|| unsafe {
        let _ = libc::atexit(at_exit);
    });
}

/// The file.
struct Writer {
    out: Lines,
    path: PathBuf,
    tracks: HashMap<u64, Track>,
    memory: Option<MemoryStats>,
    arrows: u64,
    pid: u32,
    /// That the file is cut off has been told to the log.
    is_told: bool,
}

/// What is known of a stream.
#[derive(Default)]
struct Track {
    name: String,
    queued: u64,
    is_gone: bool,
    /// The last operations: their numbers, and when they began and ended.
    recent: VecDeque<(u64, u64, u64)>,
    /// What the next operation waited for: the thread of that, and a time within it.
    arrows: Vec<(u64, u64)>,
}

impl Track {
    const RECENT: usize = 256;

    fn note(&mut self, n: u64, begun: u64, ended: u64) {
        if self.recent.len() == Self::RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((n, begun, ended));
    }

    /// A time inside the operation that ends at or before position `n`.
    fn time_at(&self, n: u64) -> Option<u64> {
        let at = self.recent.partition_point(|recent| recent.0 <= n);
        let (_, begun, ended) = self.recent.get(at.checked_sub(1)?)?;
        Some(ended.saturating_sub(1).max(*begun))
    }
}

impl Writer {
    fn new(file: File, path: PathBuf) -> Self {
        Self {
            out: Lines::new(file),
            path,
            tracks: HashMap::new(),
            memory: None,
            arrows: 0,
            pid: std::process::id(),
            is_told: false,
        }
    }

    fn begin(&mut self, runtime: &Runtime, now: u64) {
        let pid = self.pid;
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let start = wall.as_micros().saturating_sub(u128::from(now / 1000));
        let (version, device) = (env!("CARGO_PKG_VERSION"), Device::cpu());
        let workers = runtime.settings.workers;
        self.out.raw("[").end();
        self.event(format_args!(
            r#""ph":"M","pid":{pid},"tid":0,"name":"process_name","args":{{"name":"clika_runtime"}}"#
        ));
        self.event(format_args!(
            r#""ph":"M","pid":{pid},"tid":0,"name":"clika_runtime","args":{{"version":"{version}","start_unix_us":{start},"device":"{device}","workers":{workers}}}"#
        ));
    }

    fn end(mut self) -> Result<(), Error> {
        let pid = self.pid;
        // The last event has no comma behind it.
        self.out
            .formatted(format_args!(
                r#"{{"ph":"M","pid":{pid},"tid":0,"name":"trace_end","args":{{}}}}"#
            ))
            .end();
        self.out.raw("]").end();
        self.out.finish().map_err(|error| {
            Error::device(
                format!(
                    "the trace file '{}' is cut off: it could not be written",
                    self.path.display()
                ),
                Some(Arc::new(error)),
            )
        })
    }

    /// That the file could not be written from some point on, the first time this is asked then.
    fn cut_off(&mut self) -> Option<String> {
        let error = self.out.error().filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(format!(
            "the trace file '{}' is cut off here: {error}",
            self.path.display()
        ))
    }

    /// An event with these members.
    fn event(&mut self, members: fmt::Arguments<'_>) {
        self.out.formatted(format_args!("{{{members}}},")).end();
    }

    /// The first members of an event on a track.
    fn begin_event(&mut self, phase: &str, tid: u64) -> &mut Lines {
        let pid = u64::from(self.pid);
        let out = self.out.raw(phase).raw(r#","pid":"#).number(pid);
        out.raw(r#","tid":"#).number(tid)
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Strand(id, name) => self.stream(*id, name),
            Entry::Slice(slice) => self.slice(slice),
            Entry::Arrow(arrow) => self.arrow(arrow),
        }
    }

    fn stream(&mut self, id: u64, name: &str) {
        let out = self.begin_event(r#"{"ph":"M""#, id);
        out.raw(r#","name":"thread_name","args":{"name":"#);
        out.quoted(name).raw("}},").end();
        let pid = self.pid;
        self.event(format_args!(
            r#""ph":"M","pid":{pid},"tid":{id},"name":"thread_sort_index","args":{{"sort_index":{id}}}"#
        ));
        self.tracks.entry(id).or_default().name = name.to_owned();
    }

    fn slice(&mut self, slice: &Slice) {
        let (tid, what) = (slice.strand, &slice.what);
        let [submitted, begun, ended] = slice.times;
        let track = self.tracks.entry(tid).or_default();
        track.note(slice.n, begun, ended);
        let arrows = if what.category == "wait" {
            vec![]
        } else {
            std::mem::take(&mut track.arrows)
        };
        let out = self.begin_event(r#"{"ph":"X""#, tid);
        out.raw(r#","ts":"#).micros(begun);
        out.raw(r#","dur":"#).micros(ended - begun);
        out.raw(r#","name":"#).quoted(&what.name);
        out.raw(r#","cat":""#).raw(what.category);
        out.raw(r#"","args":{"n":"#).number(slice.n);
        out.raw(r#","submitted":"#).micros(submitted);
        out.raw(r#","waited":"#)
            .micros(begun.saturating_sub(submitted));
        out.raw(r#","worker":"#).quoted(&slice.thread);
        if what.bytes > 0 {
            out.raw(r#","bytes":"#).number(what.bytes);
        }
        if let Some((file, line)) = what.site.line() {
            out.raw(r#","site":""#).escaped(file);
            out.raw(":").number(u64::from(line)).raw("\"");
        }
        if let Some(failure) = &slice.failure {
            out.raw(r#","failure":"#).quoted(&told(failure));
        }
        if slice.is_skipped {
            out.raw(r#","skipped":true"#);
        }
        out.raw("}},").end();
        for (from, at) in arrows {
            self.drawn((from, at), (tid, begun));
        }
    }

    /// An arrow between two tracks, at a time on each.
    fn drawn(&mut self, from: (u64, u64), to: (u64, u64)) {
        self.arrows += 1;
        for (phase, (tid, at)) in [(r#"{"ph":"s""#, from), (r#"{"ph":"f","bp":"e""#, to)] {
            let id = self.arrows;
            let out = self.begin_event(phase, tid);
            out.raw(r#","ts":"#).micros(at).raw(r#","id":"#).number(id);
            out.raw(r#","name":"wait","cat":"wait"},"#).end();
        }
    }

    /// Remembers it until the strand's next operation is known.
    fn arrow(&mut self, arrow: &Arrow) {
        let (from, n) = arrow.from;
        let Some(at) = self.tracks.get(&from).and_then(|track| track.time_at(n)) else {
            // What was waited for ended before the trace, or long ago.
            return;
        };
        let arrows = &mut self.tracks.entry(arrow.to).or_default().arrows;
        if !arrows.contains(&(from, at)) {
            arrows.push((from, at));
        }
    }

    fn queued(&mut self, id: u64, pending: u64, now: u64) {
        // A strand that was mentioned a moment ago may still be in the log.
        let Some(track) = self.tracks.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut track.queued, pending) == pending {
            return;
        }
        let name = format!("queued: {}", track.name);
        let out = self.begin_event(r#"{"ph":"C""#, id);
        out.raw(r#","ts":"#).micros(now);
        out.raw(r#","name":"#).quoted(&name);
        out.raw(r#","args":{"operations":"#).number(pending);
        out.raw("}},").end();
    }

    /// Ends the tracks of streams that do not live any more: these do. An arrow that leads from one may
    /// still be in the log, so a track is kept for one look more.
    fn gone(&mut self, living: &[(u64, u64)], now: u64) {
        let living: HashSet<u64> = living.iter().map(|(id, _)| *id).collect();
        let was_gone = |track: &mut Track, is_gone| std::mem::replace(&mut track.is_gone, is_gone);
        self.tracks.retain(|id, track| {
            let is_gone = !living.contains(id);
            !(was_gone(track, is_gone) && is_gone)
        });
        let gone = self.tracks.iter().filter(|(_, track)| track.is_gone);
        let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.queued(id, 0, now));
    }

    fn memory(&mut self, stats: MemoryStats, now: u64) {
        let before = self.memory.replace(stats);
        let shown = |stats: MemoryStats| (stats.live_bytes, stats.cached_bytes);
        if before.map(shown) == Some(shown(stats)) {
            return;
        }
        let (live, cached) = shown(stats);
        let out = self.begin_event(r#"{"ph":"C""#, 0);
        out.raw(r#","ts":"#).micros(now);
        out.raw(r#","name":"memory""#)
            .formatted(format_args!(
                r#","args":{{"live":{live},"cached":{cached}}}}},"#
            ))
            .end();
    }
}

/// Why an operation failed, without where: its slice tells that.
fn told(failure: &Failure) -> String {
    wait::describe(failure)
}
