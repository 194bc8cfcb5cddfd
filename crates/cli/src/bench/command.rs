//! `clikart bench`: the measures one after the other, and how they did.

use std::any::Any;
use std::fs;
use std::panic;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use super::report::{Measure, Run, catalogue, table};
use super::{Figures, Sizes};
use crate::arguments::Bench;
use crate::failure::Failure;
use crate::output;

/// How much memory a stream takes is seen best before other measures have used memory.
const FIRST: &str = "streams";

pub(crate) fn run(wishes: &Bench) -> Result<(), Failure> {
    let before = wishes.compare.as_deref().map(read).transpose()?;
    let chosen = |measure: &Measure| wishes.only.is_empty() || wishes.only.contains(&measure.name);
    let measures: Vec<Measure> = catalogue().into_iter().filter(chosen).collect();
    if cfg!(debug_assertions) {
        output::note(&"this is a debug build, whose figures say little; build it with --release");
    }
    let mut run = Run::here(wishes.quick);
    if let Some(before) = &before {
        warn(&run, before);
    }
    measure_all(&measures, &mut run)?;
    output::print(&format!("{}\n", table(&measures, &run, before.as_ref())))?;
    wishes
        .json
        .as_deref()
        .map_or(Ok(()), |path| write(&run, path))
}

/// Runs the measures in this process, with a line of progress that is idle while one runs.
fn measure_all(measures: &[Measure], run: &mut Run) -> Result<(), Failure> {
    let sizes = if run.quick { Sizes::QUICK } else { Sizes::FULL };
    let mut ordered: Vec<&Measure> = measures.iter().collect();
    ordered.sort_by_key(|measure| measure.name != FIRST);
    let bar = ProgressBar::new(ordered.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    for measure in ordered {
        bar.set_message(measure.name.clone());
        bar.tick();
        let figures = one(&measure.name, &sizes)?;
        run.add(&measure.name, figures);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Runs one measure. It panics at the first surprise, which is no reason to end the process.
fn one(name: &str, sizes: &Sizes) -> Result<Figures, Failure> {
    let failed = |reason: &str| {
        Failure::new(format!(
            "the measure {name} could not be completed ({reason}); try it alone, with --only {name}"
        ))
    };
    panic::catch_unwind(|| super::run(name, sizes))
        .map_err(|panic| failed(message(&*panic)))?
        .ok_or_else(|| failed("there is none of that name"))
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it stopped without a word")
}

/// Says why a comparison may mislead.
fn warn(run: &Run, before: &Run) {
    if run.machine != before.machine {
        output::note(&format!(
            "the saved run is from another machine ({}), so the changes say little",
            before.machine
        ));
    }
    if run.quick != before.quick {
        output::note(&"one of the two runs is a quick one, so the changes say little");
    }
}

fn read(path: &Path) -> Result<Run, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::new(format!(
            "{name} cannot be read ({error}); check its name and its rights"
        ))
    })?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(format!(
            "{name} is no saved run ({error}); save one with clikart bench --json"
        ))
    })
}

fn write(run: &Run, path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let text = serde_json::to_string_pretty(run)
        .map_err(|error| Failure::new(format!("the figures cannot be saved: {error}")))?;
    fs::write(path, text + "\n").map_err(|error| {
        Failure::new(format!(
            "{name} cannot be written ({error}); give another place by --json"
        ))
    })
}
