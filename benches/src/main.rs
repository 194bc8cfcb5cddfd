//! `clika-bench PEER MEASURE [--smoke]` runs one measure and prints its figures as one JSON object.
//! `run.py` beside this crate runs all of them, several processes each.

#![expect(clippy::expect_used, reason = "a measure stops at the first surprise")]

mod memory;
mod threads;
mod tokio;

use std::env;
use std::process::ExitCode;

use clika_cli::bench::clika::Clika;
use clika_cli::bench::{Figures, Sizes, measure};

const PEERS: [&str; 5] = ["clika", "std", "crossbeam", "rayon", "tokio"];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let smoke = arguments.iter().position(|argument| argument == "--smoke");
    let sizes = if smoke.is_some() {
        Sizes::SMOKE
    } else {
        Sizes::FULL
    };
    smoke.map(|place| arguments.remove(place));
    let [peer, measure] = arguments.as_slice() else {
        return usage();
    };
    let Some(figures) = run(peer, measure, &sizes) else {
        return usage();
    };
    println!("{}", json(&figures));
    leave()
}

#[expect(
    clippy::disallowed_methods,
    reason = "tearing down a thousand threads takes long"
)]
fn leave() -> ! {
    std::process::exit(0)
}

fn run(peer: &str, measure: &str, sizes: &Sizes) -> Option<Figures> {
    if clika_cli::bench::memory::NAMES.contains(&measure) {
        return memory::run(peer, measure, sizes);
    }
    match peer {
        "clika" => measure::run::<Clika>(measure, sizes),
        "std" => measure::run::<threads::Threads<threads::StdMpsc>>(measure, sizes),
        "crossbeam" => measure::run::<threads::Threads<threads::Crossbeam>>(measure, sizes),
        "rayon" => measure::run::<threads::Threads<threads::Rayon>>(measure, sizes),
        "tokio" => measure::run::<tokio::Tokio>(measure, sizes),
        _ => None,
    }
}

fn json(figures: &Figures) -> String {
    let fields: Vec<String> = figures
        .iter()
        .map(|(name, value)| format!("\"{name}\": {value}"))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: clika-bench {} {} [--smoke]",
        [&PEERS[..], &memory::PEERS].concat().join("|"),
        [&measure::NAMES[..], &clika_cli::bench::memory::NAMES]
            .concat()
            .join("|")
    );
    ExitCode::from(2)
}
