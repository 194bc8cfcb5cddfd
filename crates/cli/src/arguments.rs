//! What the command line takes. The doc comments are the help texts.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::bench;

const EXIT_STATUS: &str = "Exit status:
  0  the command did what it was asked to
  1  it could not; one line on standard error says why
  2  the command line was not understood";

/// Looks at what clika_runtime does: timelines of traces, devices, benchmarks.
#[derive(Debug, Parser)]
#[command(name = "clikart", version, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Timeline(Timeline),
    Devices(Devices),
    Bench(Bench),
    /// Print the script that completes clikart's command line in a shell
    #[command(after_help = "\
For bash, now and in new shells:
  clikart completions bash > ~/.local/share/bash-completion/completions/clikart")]
    Completions {
        /// The shell that reads the script
        shell: Shell,
    },
}

/// Turn a trace into one HTML page that any browser shows, without a network
#[derive(Debug, Args)]
#[command(after_help = "\
A trace is what clika_runtime.trace(\"trace.json\") or the environment variable
CLIKA_TRACE=trace.json writes. One that was cut off, because its process died, is read as far as it goes.")]
pub(crate) struct Timeline {
    /// The trace to read; - reads standard input
    pub(crate) trace: PathBuf,
    /// The page to write; - writes standard output [default: the trace's name with .html]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// List the devices of this machine
#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure the runtime on this machine, beside its budgets
#[derive(Debug, Args)]
#[command(after_help = "\
The budgets are for a release build on an otherwise idle machine. Missing one is no failure. Latencies differ from
process to process: compare several runs before you believe a change.")]
pub(crate) struct Bench {
    /// Save every figure, for --compare
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Show the change since a run that was saved with --json
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(bench::names()))]
    pub(crate) only: Vec<String>,
    /// Measure with fewer repeats: a look, not a verdict
    #[arg(long)]
    pub(crate) quick: bool,
}
