//! Programs under a trace: it tells of each operation what the model says.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::model::{Expected, Model};
use crate::work::Id;

/// An operation or a wait, as the trace tells it. Times are in nanoseconds.
struct Slice {
    n: u64,
    begun: u64,
    ended: u64,
    category: String,
    failure: Option<String>,
    is_skipped: bool,
}

impl Slice {
    fn of(event: &Value) -> Self {
        let begun = time(&event["ts"]);
        let args = &event["args"];
        Self {
            n: args["n"].as_u64().unwrap(),
            begun,
            ended: begun + time(&event["dur"]),
            category: event["cat"].as_str().unwrap().to_owned(),
            failure: args["failure"].as_str().map(str::to_owned),
            is_skipped: args["skipped"] == true,
        }
    }

    fn is_work(&self) -> bool {
        !matches!(&*self.category, "wait" | "marker")
    }

    /// Checks that it went as the model says.
    fn check(&self, expected: Expected) -> Result<(), String> {
        let told = self.failure.as_deref().map(Id::in_text);
        let fits = match expected {
            Expected::Well => told.is_none(),
            Expected::Failed(id) => told == Some(Some(id)) && !self.is_skipped,
            Expected::Skipped(id) => told == Some(Some(id)) && self.is_skipped,
            Expected::Cancelled => told.is_some() == self.is_skipped,
        };
        let problem = || format!("{expected:?}, but the trace tells {:?}", self.failure);
        fits.then_some(()).ok_or_else(problem)
    }
}

/// Microseconds with three digits behind the point.
fn time(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1e3).round() as u64
}

/// Checks the trace of a program whose streams have these names.
pub(crate) fn check(path: &Path, model: &Model, names: &[String]) -> Result<(), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let tracks = tracks(&events);
    for (stream, name) in names.iter().enumerate() {
        let none = vec![];
        let track = tracks.get(name).unwrap_or(&none);
        check_order(track)?;
        let work: Vec<_> = track.iter().filter(|slice| slice.is_work()).collect();
        let expected = model.outcomes(stream);
        if work.len() != expected.len() {
            let (told, made) = (work.len(), expected.len());
            return Err(format!("'{name}' has {told} slices for {made} operations"));
        }
        for (slice, expected) in work.into_iter().zip(expected) {
            slice.check(expected)?;
        }
    }
    check_arrows(&events)
}

fn tracks(events: &[Value]) -> BTreeMap<String, Vec<Slice>> {
    let mut names = BTreeMap::new();
    let mut tracks = BTreeMap::<String, Vec<Slice>>::new();
    for event in events {
        let tid = event["tid"].as_u64().unwrap();
        if event["name"] == "thread_name" {
            names.insert(tid, event["args"]["name"].as_str().unwrap().to_owned());
        } else if event["ph"] == "X" {
            let track = tracks.entry(names[&tid].clone()).or_default();
            track.push(Slice::of(event));
        }
    }
    tracks
}

fn check_order(track: &[Slice]) -> Result<(), String> {
    for pair in track.windows(2) {
        if pair[0].n >= pair[1].n || pair[0].ended > pair[1].begun {
            return Err(format!("{} and {} are not in order", pair[0].n, pair[1].n));
        }
    }
    Ok(())
}

fn check_arrows(events: &[Value]) -> Result<(), String> {
    let ends = |phase: &str| -> BTreeMap<u64, (u64, u64)> {
        let of_phase = events.iter().filter(|event| event["ph"] == phase);
        let end = |event: &Value| (event["tid"].as_u64().unwrap(), time(&event["ts"]));
        let ends = of_phase.map(|event| (event["id"].as_u64().unwrap(), end(event)));
        ends.collect()
    };
    let (starts, ends) = (ends("s"), ends("f"));
    let is_paired = starts.keys().eq(ends.keys());
    let mut arrows = starts.values().zip(ends.values());
    let leads_on = arrows.all(|(from, to)| from.0 != to.0 && from.1 <= to.1);
    (is_paired && leads_on)
        .then_some(())
        .ok_or_else(|| "an arrow leads nowhere, or back".into())
}
