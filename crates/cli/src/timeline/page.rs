//! A trace as one HTML page: the page's own files, and the trace as columns of numbers.

use std::collections::HashMap;

use serde::Serialize;

use super::trace::{About, Counter, KINDS, Operation, Trace};

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 7] = [
    include_str!("page/format.js"),
    include_str!("page/trace.js"),
    include_str!("page/view.js"),
    include_str!("page/layout.js"),
    include_str!("page/scene.js"),
    include_str!("page/panel.js"),
    include_str!("page/page.js"),
];

/// Makes the page.
pub(crate) fn html(trace: &Trace, cut_off: bool) -> serde_json::Result<String> {
    let script = format!("{{\n\"use strict\";\n{}}}\n", SCRIPTS.join("\n"));
    // The trace comes last: nothing is looked for in what users wrote.
    Ok(FRAME
        .replacen("/* style */", STYLE, 1)
        .replacen("/* script */", &script, 1)
        .replacen("/* trace */", &data(trace, cut_off)?, 1))
}

/// The trace as JSON that may stand inside of a script element: a "<" could end the element, and
/// occurs only in texts, where it may be written otherwise.
fn data(trace: &Trace, cut_off: bool) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&Data::new(trace, cut_off))?.replace('<', "\\u003c"))
}

/// What the script of the page reads; `page/trace.js` has its counterpart.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    process: &'a str,
    version: &'a str,
    device: &'a str,
    workers: Option<u64>,
    start_unix_us: Option<f64>,
    cut_off: bool,
    left_out: usize,
    kinds: [&'static str; KINDS.len()],
    tracks: Vec<[&'a str; 2]>,
    operations: Operations,
    arrows: Arrows,
    counters: Vec<Chart<'a>>,
    /// Each text once; the columns have indices of it. The first is empty.
    strings: Vec<&'a str>,
}

/// A column for each fact. Facts that are not there are -1, and texts the empty one.
#[derive(Default, Serialize)]
struct Operations {
    track: Vec<usize>,
    /// Each start less the one before.
    start: Vec<i64>,
    duration: Vec<i64>,
    name: Vec<usize>,
    kind: Vec<usize>,
    number: Vec<i64>,
    queued: Vec<i64>,
    waited: Vec<i64>,
    worker: Vec<usize>,
    bytes: Vec<i64>,
    site: Vec<usize>,
    failure: Vec<usize>,
    skipped: Vec<u8>,
}

#[derive(Serialize)]
struct Arrows {
    from: Vec<usize>,
    to: Vec<usize>,
    start: Vec<i64>,
    end: Vec<i64>,
}

#[derive(Serialize)]
struct Chart<'a> {
    name: &'a str,
    track: Option<usize>,
    series: &'a [String],
    /// Each time less the one before.
    times: Vec<i64>,
    values: Vec<Vec<Number>>,
}

/// Whole numbers are written without a fraction.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Broken(f64),
}

impl<'a> Data<'a> {
    fn new(trace: &'a Trace, cut_off: bool) -> Self {
        let About {
            process,
            version,
            device,
            workers,
            start_unix_us,
        } = &trace.about;
        let mut strings = Strings::default();
        let operations = Operations::new(&trace.operations, &mut strings);
        Self {
            process,
            version,
            device,
            workers: *workers,
            start_unix_us: *start_unix_us,
            cut_off,
            left_out: trace.left_out,
            kinds: KINDS,
            tracks: (trace.tracks.iter())
                .map(|track| [&*track.name, &*track.process])
                .collect(),
            operations,
            arrows: Arrows {
                from: trace.arrows.iter().map(|arrow| arrow.from).collect(),
                to: trace.arrows.iter().map(|arrow| arrow.to).collect(),
                start: trace.arrows.iter().map(|arrow| arrow.start).collect(),
                end: trace.arrows.iter().map(|arrow| arrow.end).collect(),
            },
            counters: trace.counters.iter().map(Chart::new).collect(),
            strings: strings.list,
        }
    }
}

impl Operations {
    fn new<'a>(operations: &'a [Operation], strings: &mut Strings<'a>) -> Self {
        let mut columns = Self {
            start: steps(operations.iter().map(|operation| operation.start)),
            ..Self::default()
        };
        for operation in operations {
            columns.track.push(operation.track);
            columns.duration.push(operation.duration);
            columns.name.push(strings.index(&operation.name));
            columns.kind.push(operation.kind);
            columns.number.push(or_missing(operation.number));
            columns.queued.push(operation.queued.unwrap_or(-1));
            columns.waited.push(operation.waited.unwrap_or(-1));
            columns.worker.push(strings.index(&operation.worker));
            columns.bytes.push(or_missing(operation.bytes));
            columns.site.push(strings.index(&operation.site));
            columns.failure.push(strings.index(&operation.failure));
            columns.skipped.push(operation.skipped.into());
        }
        columns
    }
}

impl<'a> Chart<'a> {
    fn new(counter: &'a Counter) -> Self {
        let numbers = |series: &Vec<f64>| series.iter().copied().map(Number::from).collect();
        Self {
            name: &counter.name,
            track: counter.track,
            series: &counter.series,
            times: steps(counter.times.iter().copied()),
            values: counter.values.iter().map(numbers).collect(),
        }
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        const EXACT: f64 = (1_u64 << 53) as f64;
        if value.fract() == 0.0 && value.abs() <= EXACT {
            Self::Whole(value as i64)
        } else {
            Self::Broken(value)
        }
    }
}

/// Texts that occur often, each once.
struct Strings<'a> {
    list: Vec<&'a str>,
    known: HashMap<&'a str, usize>,
}

impl Default for Strings<'_> {
    fn default() -> Self {
        Self {
            list: vec![""],
            known: HashMap::from([("", 0)]),
        }
    }
}

impl<'a> Strings<'a> {
    fn index(&mut self, text: &'a str) -> usize {
        let next = self.list.len();
        let index = *self.known.entry(text).or_insert(next);
        if index == next {
            self.list.push(text);
        }
        index
    }
}

fn or_missing(number: Option<u64>) -> i64 {
    number.and_then(|n| n.try_into().ok()).unwrap_or(-1)
}

/// Each time less the one before: small numbers, which are short as text.
fn steps(times: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut last = 0;
    let step = |time| time - std::mem::replace(&mut last, time);
    times.map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str) -> Operation {
        Operation {
            name: name.to_owned(),
            ..Operation::default()
        }
    }

    #[test]
    fn hostile_texts_stay_texts() {
        let names = [
            "</script><script>alert(1)</script>",
            "<!--",
            "/* trace */ /* style */",
            "\"\\\u{2028}\u{0}\u{7}",
            "${x}`'",
        ];
        let trace = Trace {
            operations: names.map(operation).into(),
            ..Trace::default()
        };
        let page = html(&trace, false).unwrap();
        assert_eq!(
            page.matches("<script").count(),
            FRAME.matches("<script").count(),
            "no text opens an element"
        );
        let json = data(&trace, false).unwrap();
        assert!(page.contains(&json) && !json.contains('<'));
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (number, name) in names.iter().enumerate() {
            assert_eq!(read["strings"][number + 1], *name);
        }
    }

    #[test]
    fn the_page_has_all_its_parts_and_needs_no_network() {
        let page = html(&Trace::default(), false).unwrap();
        for part in [STYLE, SCRIPTS[0], SCRIPTS[SCRIPTS.len() - 1]] {
            assert!(page.contains(part));
        }
        assert!(!page.contains("/* style */") && !page.contains("/* script */"));
        for link in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(link), "{link}");
        }
    }

    #[test]
    fn columns_are_compact() {
        let mut later = operation("same");
        (later.start, later.bytes, later.number) = (1_000_000, Some(u64::MAX), Some(3));
        let trace = Trace {
            operations: vec![operation("same"), later],
            ..Trace::default()
        };
        let data = Data::new(&trace, true);
        assert_eq!(data.strings, ["", "same"]);
        assert_eq!(data.operations.name, [1, 1]);
        assert_eq!(data.operations.start, [0, 1_000_000]);
        assert_eq!(data.operations.bytes, [-1, -1], "more than there can be");
        assert_eq!(data.operations.number, [-1, 3]);
        assert!(data.cut_off);
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        let numbers: Vec<Number> = [1.0, -2.0, 0.5, 1e300].map(Number::from).into();
        assert_eq!(
            serde_json::to_string(&numbers).unwrap(),
            "[1,-2,0.5,1e+300]"
        );
    }
}
