//! The command line of clika-runtime: the binary `clikart`, as a library so that others can offer
//! the same command.
//!
//! ```
//! let status = clika_cli::run(["clikart", "devices"].map(Into::into));
//! assert_eq!(status, clika_cli::FINE);
//! ```
//!
//! # Exit status
//!
//! | status | meaning |
//! |---|---|
//! | [`FINE`] (0) | the command did what it was asked to |
//! | [`FAILED`] (1) | it could not; one line on standard error says why, and what to do |
//! | [`WRONG_USAGE`] (2) | the command line was not understood; standard error says what was meant |
//!
//! Results go to standard output, everything else to standard error.

mod arguments;
pub mod bench;
mod devices;
mod failure;
mod output;
mod timeline;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use failure::Failure;

/// The command did what it was asked to.
pub const FINE: u8 = 0;
/// The command could not do what it was asked to.
pub const FAILED: u8 = 1;
/// The command line was not understood.
pub const WRONG_USAGE: u8 = 2;

/// Runs the command line, whose first item is the name of the program, and returns the exit status
/// of the process: [`FINE`], [`FAILED`] or [`WRONG_USAGE`].
///
/// It writes to the standard output and the standard error of the process, and never ends it.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    match execute(arguments.command) {
        Ok(()) => FINE,
        Err(failure) => {
            output::note(&failure);
            FAILED
        }
    }
}

fn execute(command: Command) -> Result<(), Failure> {
    match command {
        Command::Timeline(wishes) => timeline::run(&wishes),
        Command::Bench(wishes) => bench::command::run(&wishes),
        Command::Devices(wishes) => devices::run(&wishes),
        Command::Completions { shell } => output::print(&completions(shell)),
    }
}

/// Prints what clap has to say: an error, or the help or version that was asked for.
fn explain(error: &clap::Error) -> u8 {
    // Where even that cannot be printed, the status alone has to tell.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => FINE,
        _ => WRONG_USAGE,
    }
}

/// The script that completes the command line in that shell.
fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "clikart", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
