//! Where commands write: results to standard output, notes to standard error.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use console::Term;

use crate::failure::Failure;

/// Writes a result to standard output. A reader that has seen enough and left is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "standard output cannot be written ({error}); check where it goes"
        ))),
        _ => Ok(()),
    }
}

/// Tells the user one line on standard error.
pub(crate) fn note(message: &impl fmt::Display) {
    // Where standard error is closed, nobody wants to know.
    let _ = writeln!(io::stderr(), "clikart: {message}");
}

/// How many columns a table may take.
pub(crate) fn width() -> u16 {
    const NO_TERMINAL: u16 = 120;
    Term::stdout()
        .size_checked()
        .map_or(NO_TERMINAL, |(_, columns)| columns)
}
