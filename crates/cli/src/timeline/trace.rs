//! What the events of a trace mean: streams, their operations, the waits between them, counters.
//!
//! The format is that of Chrome's trace viewer. Events of other kinds and unknown facts are left
//! out, so traces of other programs are shown as far as they have operations.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The kinds of operations; what a trace calls otherwise is the last.
pub(crate) const KINDS: [&str; 8] = [
    "native", "host", "python", "copy", "fill", "marker", "wait", "other",
];

/// Everything that is shown. Times are in nanoseconds since the first of them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) about: About,
    pub(crate) tracks: Vec<Track>,
    /// In the order in which they started; of those that started together, the longest first.
    pub(crate) operations: Vec<Operation>,
    pub(crate) arrows: Vec<Arrow>,
    pub(crate) counters: Vec<Counter>,
    /// How many events of the format could not be understood.
    pub(crate) left_out: usize,
}

/// What the trace tells about the process.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct About {
    pub(crate) process: String,
    pub(crate) version: String,
    pub(crate) device: String,
    pub(crate) workers: Option<u64>,
    /// When the first shown time was, in microseconds since 1970.
    pub(crate) start_unix_us: Option<f64>,
}

/// A stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) name: String,
    /// The process, where the trace has several.
    pub(crate) process: String,
}

/// What ran on a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Operation {
    pub(crate) track: usize,
    pub(crate) start: i64,
    pub(crate) duration: i64,
    pub(crate) name: String,
    /// An index of [`KINDS`].
    pub(crate) kind: usize,
    /// Its number on the stream.
    pub(crate) number: Option<u64>,
    /// How long before its start it was submitted.
    pub(crate) queued: Option<i64>,
    /// How long it waited for other streams.
    pub(crate) waited: Option<i64>,
    pub(crate) worker: String,
    pub(crate) bytes: Option<u64>,
    /// The line that submitted it.
    pub(crate) site: String,
    pub(crate) failure: String,
    pub(crate) skipped: bool,
}

impl Operation {
    fn end(&self) -> i64 {
        self.start + self.duration
    }
}

/// A wait: what happened on one operation lets another go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    /// Indices of operations.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Values over time. Each sample holds until the next.
#[derive(Debug, PartialEq)]
pub(crate) struct Counter {
    pub(crate) name: String,
    /// The stream that it belongs to.
    pub(crate) track: Option<usize>,
    pub(crate) series: Vec<String>,
    pub(crate) times: Vec<i64>,
    /// One list for each series, one value for each time.
    pub(crate) values: Vec<Vec<f64>>,
}

/// One event, as the format has it. Times are in microseconds.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(default)]
    pid: i64,
    #[serde(default)]
    tid: i64,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

/// The facts of an operation.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Facts<'a> {
    n: Option<u64>,
    submitted: Option<f64>,
    waited: Option<f64>,
    #[serde(borrow)]
    worker: Cow<'a, str>,
    bytes: Option<u64>,
    #[serde(borrow)]
    site: Cow<'a, str>,
    #[serde(borrow)]
    failure: Cow<'a, str>,
    skipped: bool,
}

/// The facts of the process.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Runtime<'a> {
    #[serde(borrow)]
    version: Cow<'a, str>,
    start_unix_us: Option<f64>,
    #[serde(borrow)]
    device: Cow<'a, str>,
    workers: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// A track as the format names it: a process and a thread.
type Place = (i64, i64);

/// Times further from zero than a century are no times, and would overflow what is computed.
const LATEST: f64 = 4e15;

/// Reads the events of a trace.
pub(crate) fn read(events: &[&str]) -> Trace {
    let mut reader = Reader::default();
    for text in events {
        if reader.event(text).is_none() {
            reader.left_out += 1;
        }
    }
    reader.finish()
}

/// What has been read, with times in microseconds as the trace has them.
#[derive(Default)]
struct Reader<'a> {
    runtime: Runtime<'a>,
    processes: BTreeMap<i64, String>,
    names: HashMap<Place, String>,
    slices: Vec<Slice<'a>>,
    sources: HashMap<(i64, &'a str), Vec<(f64, Place)>>,
    targets: Vec<(i64, &'a str, f64, Place)>,
    samples: Vec<Sample<'a>>,
    left_out: usize,
}

struct Slice<'a> {
    place: Place,
    start: f64,
    duration: f64,
    name: Cow<'a, str>,
    kind: Cow<'a, str>,
    facts: Facts<'a>,
}

struct Sample<'a> {
    place: Place,
    name: Cow<'a, str>,
    time: f64,
    values: Series,
}

impl<'a> Reader<'a> {
    /// Takes one event in; `None` where it is not as the format wants it.
    fn event(&mut self, text: &'a str) -> Option<()> {
        let event: Event<'a> = serde_json::from_str(text).ok()?;
        let place = (event.pid, event.tid);
        match &*event.ph {
            "M" => self.about(&event),
            "X" => self.slices.push(Slice {
                place,
                start: time(event.ts?)?,
                duration: time(event.dur.unwrap_or(0.0)).filter(|us| *us >= 0.0)?,
                facts: parse(event.args),
                name: event.name,
                kind: event.cat,
            }),
            "s" => {
                let source = (time(event.ts?)?, place);
                let id = (event.pid, event.id?.get());
                self.sources.entry(id).or_default().push(source);
            }
            "f" => {
                let target = (event.pid, event.id?.get(), time(event.ts?)?, place);
                self.targets.push(target);
            }
            "C" => self.samples.push(Sample {
                place,
                time: time(event.ts?)?,
                values: serde_json::from_str(event.args?.get()).ok()?,
                name: event.name,
            }),
            _ => {}
        }
        Some(())
    }

    /// Takes in what is told about the process and its streams.
    fn about(&mut self, event: &Event<'a>) {
        let name = || parse::<Name<'_>>(event.args).name.into_owned();
        match &*event.name {
            "process_name" => drop(self.processes.insert(event.pid, name())),
            "thread_name" => drop(self.names.insert((event.pid, event.tid), name())),
            "clika_runtime" => self.runtime = parse(event.args),
            _ => {}
        }
    }

    fn finish(mut self) -> Trace {
        let origin = self.origin();
        let nanoseconds = |us: f64| ((us - origin) * 1e3).round() as i64;
        let tracks = self.tracks();
        let operations = self.operations(&tracks, nanoseconds);
        let arrows = self.arrows(&tracks, &operations, nanoseconds);
        let counters = counters(std::mem::take(&mut self.samples), &tracks, nanoseconds);
        let start_unix_us = self.runtime.start_unix_us.map(|start| start + origin);
        Trace {
            tracks: self.named(&tracks),
            operations,
            arrows,
            counters,
            left_out: self.left_out,
            about: About {
                process: self.processes.into_values().next().unwrap_or_default(),
                version: self.runtime.version.into_owned(),
                device: self.runtime.device.into_owned(),
                workers: self.runtime.workers,
                start_unix_us: start_unix_us.filter(|us| us.is_finite()),
            },
        }
    }

    /// The first time that is shown.
    fn origin(&self) -> f64 {
        let starts = self.slices.iter().map(|slice| slice.start);
        let samples = self.samples.iter().map(|sample| sample.time);
        let first = starts.chain(samples).fold(f64::INFINITY, f64::min);
        if first.is_finite() { first } else { 0.0 }
    }

    /// The streams that something ran on, in the order of their numbers.
    fn tracks(&self) -> BTreeMap<Place, usize> {
        let mut tracks: BTreeMap<Place, usize> =
            self.slices.iter().map(|slice| (slice.place, 0)).collect();
        for (number, track) in tracks.values_mut().enumerate() {
            *track = number;
        }
        tracks
    }

    fn named(&self, tracks: &BTreeMap<Place, usize>) -> Vec<Track> {
        let several = tracks.keys().any(|(pid, _)| {
            tracks
                .first_key_value()
                .is_some_and(|((first, _), _)| first != pid)
        });
        let track = |place: &Place| Track {
            name: match self.names.get(place) {
                Some(name) if !name.is_empty() => name.clone(),
                _ => format!("stream {}", place.1),
            },
            process: match self.processes.get(&place.0) {
                Some(name) if several => format!("{name} ({})", place.0),
                None if several => format!("process {}", place.0),
                _ => String::new(),
            },
        };
        tracks.keys().map(track).collect()
    }

    fn operations(
        &mut self,
        tracks: &BTreeMap<Place, usize>,
        nanoseconds: impl Fn(f64) -> i64,
    ) -> Vec<Operation> {
        let operation = |slice: Slice<'_>| {
            let start = nanoseconds(slice.start);
            let facts = slice.facts;
            let queued = facts.submitted.and_then(time);
            Operation {
                track: tracks[&slice.place],
                start,
                duration: (nanoseconds(slice.start + slice.duration) - start).max(0),
                name: slice.name.into_owned(),
                kind: kind(&slice.kind),
                number: facts.n,
                queued: queued.map(|us| (start - nanoseconds(us)).max(0)),
                waited: facts.waited.and_then(time).map(|us| (us * 1e3) as i64),
                worker: facts.worker.into_owned(),
                bytes: facts.bytes,
                site: facts.site.into_owned(),
                failure: facts.failure.into_owned(),
                skipped: facts.skipped,
            }
        };
        let mut operations: Vec<_> = self.slices.drain(..).map(operation).collect();
        operations.sort_by_key(|operation| (operation.start, -operation.duration));
        operations
    }

    /// Ties the ends of each wait to the operations that they lie on.
    fn arrows(
        &mut self,
        tracks: &BTreeMap<Place, usize>,
        operations: &[Operation],
        nanoseconds: impl Fn(f64) -> i64,
    ) -> Vec<Arrow> {
        let mut on_track = vec![Vec::new(); tracks.len()];
        for (number, operation) in operations.iter().enumerate() {
            on_track[operation.track].push(number);
        }
        let at = |(us, place): (f64, Place)| {
            let (time, on) = (nanoseconds(us), &on_track[*tracks.get(&place)?]);
            Some((operation_at(operations, on, time)?, time))
        };
        for sources in self.sources.values_mut() {
            sources.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        let arrow = |&(pid, id, us, place): &(i64, &str, f64, Place)| {
            let sources = self.sources.get(&(pid, id))?;
            // An id may be used again: the last that came before is meant.
            let before = sources.partition_point(|source| source.0 <= us);
            let (from, start) = at(*sources.get(before.saturating_sub(1))?)?;
            let (to, end) = at((us, place))?;
            Some(Arrow {
                from,
                to,
                start,
                end,
            })
        };
        let mut arrows: Vec<_> = self.targets.iter().filter_map(arrow).collect();
        arrows.sort_by_key(|arrow| arrow.start);
        arrows
    }
}

/// The operation of a track at that time: the last of those that had begun and not ended, else the
/// last that had begun, else the first.
fn operation_at(operations: &[Operation], on: &[usize], time: i64) -> Option<usize> {
    /// Operations of a stream may lie in one another, but hardly deeper than this.
    const DEPTH: usize = 16;
    let begun = &on[..on.partition_point(|number| operations[*number].start <= time)];
    let mut latest = begun.iter().rev().take(DEPTH);
    let around = latest.find(|number| operations[**number].end() >= time);
    around.or(begun.last()).or(on.first()).copied()
}

fn counters(
    mut samples: Vec<Sample<'_>>,
    tracks: &BTreeMap<Place, usize>,
    nanoseconds: impl Fn(f64) -> i64,
) -> Vec<Counter> {
    samples.sort_by(|one, other| one.time.total_cmp(&other.time));
    let mut counters: BTreeMap<(Place, String), Counter> = BTreeMap::new();
    for sample in samples {
        let key = (sample.place, sample.name.into_owned());
        let counter = counters
            .entry(key)
            .or_insert_with_key(|(place, name)| Counter {
                track: tracks
                    .get(place)
                    .copied()
                    .filter(|_| name.starts_with("queued")),
                name: name.clone(),
                series: Vec::new(),
                times: Vec::new(),
                values: Vec::new(),
            });
        counter.add(nanoseconds(sample.time), sample.values);
    }
    counters.into_values().collect()
}

impl Counter {
    /// Adds a sample. A series that it does not mention keeps its value.
    fn add(&mut self, time: i64, Series(values): Series) {
        for series in &mut self.values {
            series.push(series.last().copied().unwrap_or(0.0));
        }
        for (name, value) in values {
            if let Some(at) = self.series(name) {
                self.values[at][self.times.len()] = value;
            }
        }
        self.times.push(time);
    }

    /// Where a series is, which is made if need be; `None` for more of them than a chart can show.
    fn series(&mut self, name: String) -> Option<usize> {
        const SHOWN: usize = 6;
        let known = self.series.iter().position(|known| *known == name);
        if known.is_none() && self.series.len() < SHOWN {
            self.series.push(name);
            self.values.push(vec![0.0; self.times.len() + 1]);
            return Some(self.series.len() - 1);
        }
        known
    }
}

/// The values of a sample, in the order of the trace.
struct Series(Vec<(String, f64)>);

impl<'de> Deserialize<'de> for Series {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SeriesVisitor)
    }
}

struct SeriesVisitor;

impl<'de> Visitor<'de> for SeriesVisitor {
    type Value = Series;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers by name")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Series, M::Error> {
        let mut values = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            values.push((name, map.next_value()?));
        }
        Ok(Series(values))
    }
}

/// What `args` tell; nothing where they are missing or of another form.
fn parse<'a, T: Default + Deserialize<'a>>(args: Option<&'a RawValue>) -> T {
    args.and_then(|args| serde_json::from_str(args.get()).ok())
        .unwrap_or_default()
}

fn time(us: f64) -> Option<f64> {
    (us.abs() <= LATEST).then_some(us)
}

fn kind(category: &str) -> usize {
    let known = KINDS.iter().position(|kind| *kind == category);
    known.unwrap_or(KINDS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::events::split;

    fn trace(lines: &[&str]) -> Trace {
        let text = format!("[{}]", lines.join(",\n"));
        read(&split(&text).unwrap().texts)
    }

    const TWO_STREAMS: &[&str] = &[
        r#"{"ph":"M","pid":7,"tid":0,"name":"process_name","args":{"name":"photos.py"}}"#,
        r#"{"ph":"M","pid":7,"tid":0,"name":"clika_runtime","args":{"version":"0.1.0","start_unix_us":1000,"device":"cpu:0","workers":2}}"#,
        r#"{"ph":"M","pid":7,"tid":2,"name":"thread_name","args":{"name":"denoise"}}"#,
        r#"{"ph":"C","pid":7,"tid":2,"ts":9.5,"name":"queued: denoise","args":{"operations":1}}"#,
        r#"{"ph":"C","pid":7,"tid":0,"ts":10,"name":"memory","args":{"live":5,"cached":2}}"#,
        r#"{"ph":"C","pid":7,"tid":0,"ts":11,"name":"memory","args":{"cached":3}}"#,
        r#"{"ph":"f","bp":"e","pid":7,"tid":2,"ts":20,"id":7,"name":"wait","cat":"wait"}"#,
        r#"{"ph":"X","pid":7,"tid":2,"ts":20,"dur":0.25,"name":"smooth","cat":"python","args":{"n":12,"submitted":12.5,"waited":1.5,"worker":"w","site":"photos.py:31","failure":"ValueError: no","new":[]}}"#,
        r#"{"ph":"X","pid":7,"tid":1,"ts":10.001,"dur":9.999,"name":"read","cat":"copy","args":{"bytes":4096}}"#,
        r#"{"ph":"s","pid":7,"tid":1,"ts":20,"id":7,"name":"wait","cat":"wait"}"#,
        r#"{"ph":"X","pid":7,"tid":2,"ts":21,"dur":0,"name":"more","cat":"new","args":{"skipped":true}}"#,
    ];

    #[test]
    fn a_whole_trace_is_understood() {
        let trace = trace(TWO_STREAMS);
        assert_eq!(trace.left_out, 0);
        assert_eq!(
            trace.about,
            About {
                process: "photos.py".to_owned(),
                version: "0.1.0".to_owned(),
                device: "cpu:0".to_owned(),
                workers: Some(2),
                start_unix_us: Some(1009.5),
            }
        );
        let names: Vec<&str> = trace.tracks.iter().map(|track| &*track.name).collect();
        assert_eq!(names, ["stream 1", "denoise"]);

        let [read, smooth, more] = &trace.operations[..] else {
            panic!("{:?}", trace.operations)
        };
        assert_eq!((read.track, read.start, read.duration), (0, 501, 9_999));
        assert_eq!((read.kind, read.bytes, read.number), (3, Some(4096), None));
        assert_eq!((smooth.start, smooth.duration), (10_500, 250));
        assert_eq!((smooth.queued, smooth.waited), (Some(7_500), Some(1_500)));
        assert_eq!(
            (&*smooth.site, &*smooth.failure),
            ("photos.py:31", "ValueError: no")
        );
        assert_eq!((more.kind, more.skipped), (KINDS.len() - 1, true));

        let arrow = Arrow {
            from: 0,
            to: 1,
            start: 10_500,
            end: 10_500,
        };
        assert_eq!(trace.arrows, [arrow]);

        let [memory, queued] = &trace.counters[..] else {
            panic!("{:?}", trace.counters)
        };
        assert_eq!((memory.track, queued.track), (None, Some(1)));
        assert_eq!(memory.series, ["live", "cached"]);
        assert_eq!(memory.values, [[5.0, 5.0], [2.0, 3.0]]);
        assert_eq!(
            (&queued.times[..], &memory.times[..]),
            (&[0][..], &[500, 1_500][..])
        );
    }

    #[test]
    fn what_is_unknown_is_ignored_and_what_is_wrong_is_counted() {
        let strange = [
            r#"{"ph":"B","ts":1,"name":"other form"}"#,
            r#"{"ph":"?","extra":{"deep":[{}]}}"#,
            r#"{"ph":"X","ts":1,"dur":2,"name":"odd facts","args":{"n":"one"}}"#,
            r#"{"ph":"f","ts":1,"id":"nobody"}"#,
            r#"{"ph":"M","name":"process_name","args":[]}"#,
        ];
        let trace = trace(&strange);
        assert_eq!((trace.left_out, trace.operations.len()), (0, 1));
        assert_eq!((trace.arrows.len(), trace.about), (0, About::default()));

        let wrong = [
            "1",
            "null",
            "[]",
            "{}",
            r#"{"ph":"X","name":"no time"}"#,
            r#"{"ph":"X","ts":"1","name":"a text for a time"}"#,
            r#"{"ph":"X","ts":1,"dur":-1}"#,
            r#"{"ph":"X","ts":1e300,"dur":1}"#,
            r#"{"ph":"X","ts":0,"dur":1e300}"#,
            r#"{"ph":"s","ts":1}"#,
            r#"{"ph":"C","ts":1,"args":{"a":"b"}}"#,
            r#"{"ph":"C","ts":1}"#,
        ];
        let trace = self::trace(&wrong);
        assert_eq!((trace.left_out, trace.operations.len()), (wrong.len(), 0));
    }

    #[test]
    fn times_since_1970_and_before_zero_are_fine() {
        for (first, second) in [
            (1_764_550_000_000_000.5, 1_764_550_000_000_002.0),
            (-5.5, -4.0),
        ] {
            let event = |ts: f64| format!(r#"{{"ph":"X","tid":1,"ts":{ts},"dur":10}}"#);
            let trace = trace(&[&event(second), &event(first)]);
            assert_eq!(trace.operations[0].start, 0);
            assert_eq!(trace.operations[1].start, 1_500);
            assert_eq!(trace.operations[1].duration, 10_000);
        }
    }

    #[test]
    fn times_a_century_apart_are_no_danger() {
        let trace = trace(&[
            r#"{"ph":"X","ts":-3.9e15,"dur":3.9e15,"args":{"submitted":3.9e15,"waited":3.9e15}}"#,
            r#"{"ph":"X","ts":3.9e15,"dur":3.9e15,"args":{"submitted":-3.9e15}}"#,
        ]);
        assert_eq!((trace.operations.len(), trace.left_out), (2, 0));
    }

    #[test]
    fn operations_are_in_the_order_of_their_starts() {
        let trace = trace(&[
            r#"{"ph":"X","ts":3,"dur":1,"name":"c"}"#,
            r#"{"ph":"X","ts":1,"dur":1,"name":"b"}"#,
            r#"{"ph":"X","ts":1,"dur":9,"name":"a"}"#,
        ]);
        let names: Vec<&str> = trace.operations.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn an_id_that_is_used_again_means_the_last_source() {
        let trace = trace(&[
            r#"{"ph":"X","tid":1,"ts":0,"dur":1,"name":"a"}"#,
            r#"{"ph":"X","tid":1,"ts":5,"dur":1,"name":"b"}"#,
            r#"{"ph":"X","tid":2,"ts":2,"dur":1,"name":"c"}"#,
            r#"{"ph":"X","tid":2,"ts":7,"dur":1,"name":"d"}"#,
            r#"{"ph":"s","tid":1,"ts":1,"id":"x"}"#,
            r#"{"ph":"s","tid":1,"ts":6,"id":"x"}"#,
            r#"{"ph":"f","tid":2,"ts":7,"id":"x"}"#,
            r#"{"ph":"f","tid":2,"ts":2,"id":"x"}"#,
        ]);
        let ends: Vec<_> = trace
            .arrows
            .iter()
            .map(|arrow| (arrow.from, arrow.to))
            .collect();
        assert_eq!(ends, [(0, 1), (2, 3)]);
    }

    #[test]
    fn several_processes_are_told_apart() {
        let trace = trace(&[
            r#"{"ph":"M","pid":1,"name":"process_name","args":{"name":"parent"}}"#,
            r#"{"ph":"X","pid":1,"tid":1,"ts":0}"#,
            r#"{"ph":"X","pid":2,"tid":1,"ts":0}"#,
        ]);
        let processes: Vec<&str> = trace.tracks.iter().map(|track| &*track.process).collect();
        assert_eq!(processes, ["parent (1)", "process 2"]);
    }

    #[test]
    fn a_counter_has_a_bounded_number_of_series() {
        let samples: Vec<String> = (0..1_000)
            .map(|n| format!(r#"{{"ph":"C","ts":{n},"name":"many","args":{{"{n}":1}}}}"#))
            .collect();
        let samples: Vec<&str> = samples.iter().map(|sample| &**sample).collect();
        let trace = read(&samples);
        assert_eq!(trace.counters[0].series.len(), 6);
        assert_eq!(trace.counters[0].times.len(), 1_000);
    }
}
