//! The measures that the budgets of the runtime are stated in, and the command `clikart bench`.
//!
//! `clika-bench` runs the same measures with what a Rust user would build instead: see
//! [`peer::Peer`].

pub mod clika;
pub(crate) mod command;
pub mod measure;
pub mod memory;
pub mod peer;
mod process;
mod report;

pub use measure::{Figures, Sizes};

use clika::Clika;

/// The names of all measures: those of streams, then those of buffers.
pub fn names() -> impl Iterator<Item = &'static str> {
    measure::NAMES.into_iter().chain(memory::NAMES)
}

/// Runs one measure of our own streams and buffers; `None` for a name that is not among [`names`].
///
/// # Panics
///
/// If the runtime fails in the middle of it.
pub fn run(name: &str, sizes: &Sizes) -> Option<Figures> {
    measure::run::<Clika>(name, sizes).or_else(|| memory::run(name, sizes))
}
