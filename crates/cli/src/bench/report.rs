//! What a run found, beside the budgets and an earlier run.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use clika_runtime::Device;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};

use super::Figures;

/// Smaller changes are what runs differ by anyway.
const NOISE: f64 = 0.05;

/// One measure, as the catalogue has it.
#[derive(Debug, Deserialize)]
pub(super) struct Measure {
    pub(super) name: String,
    figures: Vec<Figure>,
}

/// One line of the table.
#[derive(Debug, Deserialize)]
struct Figure {
    key: String,
    title: String,
    better: Better,
    budget: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Better {
    Less,
    More,
}

/// What is measured, with the budgets. The driver of the benchmarks reads the same file.
#[expect(clippy::expect_used, reason = "the file is part of the program")]
pub(super) fn catalogue() -> Vec<Measure> {
    serde_json::from_str(include_str!("catalogue.json")).expect("the catalogue has this form")
}

/// The figures of one run, as they are saved.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Run {
    pub(super) version: String,
    pub(super) machine: String,
    pub(super) quick: bool,
    unix_time: u64,
    /// By measure and key.
    figures: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Run {
    /// A run that begins here and now.
    pub(super) fn here(quick: bool) -> Self {
        let cpu = Device::cpu();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: format!("{}, {} cores", cpu.name().trim(), cpu.compute_units()),
            quick,
            unix_time: since_1970.map_or(0, |time| time.as_secs()),
            figures: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, measure: &str, figures: Figures) {
        let figures = figures
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        self.figures.insert(measure.to_owned(), figures.collect());
    }

    fn figure(&self, measure: &str, key: &str) -> Option<f64> {
        self.figures.get(measure)?.get(key).copied()
    }
}

/// The figures as a table; with an earlier run, what changed since.
pub(super) fn table(measures: &[Measure], run: &Run, before: Option<&Run>) -> String {
    let mut table = Table::new();
    let mut head = vec!["measure", "", "budget", "result", ""];
    if before.is_some() {
        head.extend(["before", "change"]);
    }
    table.load_style(NOTHING).set_header(head);
    for measure in measures {
        for (place, figure) in measure.figures.iter().enumerate() {
            let name = if place == 0 { &*measure.name } else { "" };
            let mut row = vec![name.to_owned(), figure.title.clone()];
            row.extend(figure.cells(&measure.name, run, before));
            table.add_row(row);
        }
    }
    for number in [2, 3, 5] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

impl Figure {
    /// Budget, result, verdict; value and change of the earlier run.
    fn cells(&self, measure: &str, run: &Run, before: Option<&Run>) -> Vec<String> {
        let value = run.figure(measure, &self.key);
        let mut cells = vec![
            self.budget_text(),
            value.map_or_else(missing, short),
            value.map_or_else(String::new, |value| self.verdict(value).to_owned()),
        ];
        if let Some(before) = before {
            let before = before.figure(measure, &self.key);
            let change = value
                .zip(before)
                .map(|(value, before)| self.change(value, before));
            cells.push(before.map_or_else(missing, short));
            cells.push(change.unwrap_or_default());
        }
        cells
    }

    fn budget_text(&self) -> String {
        match (self.budget, self.better) {
            (None, _) => String::new(),
            (Some(0.0), Better::Less) => "0".to_owned(),
            (Some(budget), Better::Less) => format!("≤ {budget}"),
            (Some(budget), Better::More) => format!("≥ {budget}"),
        }
    }

    fn verdict(&self, value: f64) -> &'static str {
        let met = self.budget.map(|budget| match self.better {
            Better::Less => value <= budget,
            Better::More => value >= budget,
        });
        match met {
            None => "",
            Some(true) => "✓ met",
            Some(false) => "✗ missed",
        }
    }

    fn change(&self, value: f64, before: f64) -> String {
        let change = value / before - 1.0;
        if value == before || change.abs() < NOISE {
            return "about the same".to_owned();
        }
        if !change.is_finite() {
            return String::new();
        }
        let word = match (change < 0.0) == (self.better == Better::Less) {
            true => "better",
            false => "worse",
        };
        format!("{:+.0} % {word}", change * 100.0)
    }
}

fn missing() -> String {
    "-".to_owned()
}

/// A number with three significant digits and no exponent.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    let decimals = (3 - before_point).clamp(0, 6) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{self, Sizes};

    fn figure(better: Better, budget: Option<f64>) -> Figure {
        Figure {
            key: "key".to_owned(),
            title: "title".to_owned(),
            better,
            budget,
        }
    }

    #[test]
    fn the_catalogue_names_what_is_measured() {
        let catalogue = catalogue();
        let listed: Vec<&str> = catalogue.iter().map(|measure| &*measure.name).collect();
        assert_eq!(listed, bench::names().collect::<Vec<_>>());
        for measure in &catalogue {
            let figures = bench::run(&measure.name, &Sizes::SMOKE).unwrap();
            for figure in &measure.figures {
                let found = figures.iter().find(|(key, _)| *key == figure.key);
                assert!(found.is_some(), "{} {}", measure.name, figure.key);
            }
        }
    }

    #[test]
    fn verdicts_follow_the_budget() {
        let less = figure(Better::Less, Some(60.0));
        assert_eq!(
            (less.verdict(60.0), less.verdict(60.1)),
            ("✓ met", "✗ missed")
        );
        let more = figure(Better::More, Some(1.95));
        assert_eq!(
            (more.verdict(1.95), more.verdict(1.9)),
            ("✓ met", "✗ missed")
        );
        assert_eq!(figure(Better::More, None).verdict(1.0), "");
        assert_eq!(
            (&*less.budget_text(), &*more.budget_text()),
            ("≤ 60", "≥ 1.95")
        );
        assert_eq!(figure(Better::Less, Some(0.0)).budget_text(), "0");
    }

    #[test]
    fn changes_are_judged_by_what_is_better() {
        let (less, more) = (figure(Better::Less, None), figure(Better::More, None));
        assert_eq!(less.change(50.0, 100.0), "-50 % better");
        assert_eq!(less.change(120.0, 100.0), "+20 % worse");
        assert_eq!(more.change(120.0, 100.0), "+20 % better");
        assert_eq!(more.change(50.0, 100.0), "-50 % worse");
        assert_eq!(more.change(102.0, 100.0), "about the same");
        assert_eq!(less.change(0.0, 0.0), "about the same");
        assert_eq!(less.change(2.0, 0.0), "");
    }

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.000_12, "0.000120"),
            (0.332, "0.332"),
            (1.0, "1.00"),
            (37.26, "37.3"),
            (276.6, "277"),
            (10_000.0, "10000"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_saved_run_is_compared() {
        let mut run = Run::here(true);
        run.add("overlap", vec![("gain", 1.97)]);
        let saved = serde_json::to_string(&run).unwrap();
        let saved: Run = serde_json::from_str(&saved).unwrap();
        run.add("overlap", vec![("gain", 0.985)]);
        let measures: Vec<Measure> = catalogue()
            .into_iter()
            .filter(|one| one.name == "overlap")
            .collect();
        let table = table(&measures, &run, Some(&saved));
        for part in ["≥ 1.95", "0.985", "✗ missed", "1.97", "-50 % worse"] {
            assert!(table.contains(part), "{part}:\n{table}");
        }
    }
}
