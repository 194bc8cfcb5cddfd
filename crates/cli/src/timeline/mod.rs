//! `clikart timeline`: a trace as a page.

mod events;
mod page;
mod trace;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::arguments::Timeline;
use crate::failure::Failure;
use crate::output;
use events::Events;
use trace::Trace;

const STANDARD: &str = "-";

pub(crate) fn run(wishes: &Timeline) -> Result<(), Failure> {
    let target = target(wishes)?;
    let name = name(&wishes.trace);
    let text = read(&wishes.trace)?;
    let events = events::split(&text).map_err(|problem| {
        Failure::new(format!(
            "{name} is no trace: {problem}. Give a file that clika_runtime wrote, as \
             CLIKA_TRACE=trace.json makes it"
        ))
    })?;
    let trace = trace::read(&events.texts);
    warn(&name, &events, &trace);
    if trace.operations.is_empty() {
        return Err(Failure::new(format!(
            "{name} has no operations: check that the program submitted work while it was traced"
        )));
    }
    let page = page::html(&trace, events.cut_off)
        .map_err(|error| Failure::new(format!("{name} cannot be shown: {error}")))?;
    write(&page, &target)?;
    if target != Path::new(STANDARD) {
        output::note(&format!(
            "wrote {}: {} on {}; open it in a browser",
            target.display(),
            count(trace.operations.len(), "operation"),
            count(trace.tracks.len(), "stream"),
        ));
    }
    Ok(())
}

/// Says what of the trace is missing.
fn warn(name: &str, events: &Events<'_>, trace: &Trace) {
    if events.cut_off {
        output::note(&format!(
            "{name} was cut off, so its process did not end in order; {} could be read",
            count(events.texts.len(), "event"),
        ));
    }
    if trace.left_out > 0 {
        output::note(&format!(
            "{name} has {} that could not be understood and {} left out",
            count(trace.left_out, "event"),
            if trace.left_out == 1 { "is" } else { "are" },
        ));
    }
}

/// Where the page goes: never over the trace.
fn target(wishes: &Timeline) -> Result<PathBuf, Failure> {
    let target = match &wishes.output {
        Some(output) => output.clone(),
        None if wishes.trace == Path::new(STANDARD) => STANDARD.into(),
        None => wishes.trace.with_extension("html"),
    };
    let same = target != Path::new(STANDARD) && same_file(&target, &wishes.trace);
    if same {
        return Err(Failure::new(format!(
            "the page would replace the trace {}: give another name by --output",
            target.display()
        )));
    }
    Ok(target)
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new(STANDARD) {
        io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        fs::read(path).map(|content| bytes = content)
    };
    read.map_err(|error| {
        let name = name(path);
        Failure::new(format!(
            "{name} cannot be read ({error}); check its name and its rights"
        ))
    })?;
    // What is cut inside of a character is still a trace.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn write(page: &str, target: &Path) -> Result<(), Failure> {
    if target == Path::new(STANDARD) {
        return output::print(page);
    }
    fs::write(target, page).map_err(|error| {
        Failure::new(format!(
            "{} cannot be written ({error}); give another place by --output",
            target.display()
        ))
    })
}

/// What messages call the trace.
fn name(path: &Path) -> String {
    if path == Path::new(STANDARD) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// A number and a noun, with commas between the thousands.
fn count(number: usize, noun: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    let ending = if number == 1 { "" } else { "s" };
    format!("{text} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!(count(0, "event"), "0 events");
        assert_eq!(count(1, "event"), "1 event");
        assert_eq!(count(999, "event"), "999 events");
        assert_eq!(count(1_234_567, "event"), "1,234,567 events");
    }
}
