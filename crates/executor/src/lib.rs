//! Strands, timelines and the threads under them: the executor of `clika-runtime`.
//!
//! This crate knows neither devices nor streams. It runs operations in order on *strands*, lets
//! everything wait for *points* on their timelines without holding threads, carries failures along,
//! and shuts down in bounded time. Users want `clika-runtime`, which says all of that in the words
//! of the field.
//!
//! | module | what it is |
//! |---|---|
//! | `operation` | one unit of work, stored without an allocation of its own |
//! | `timeline` | the counter of a strand, and everybody who waits on it |
//! | `failure` | failures, and the epochs that carry them |
//! | `strand` | the queue, and the turn: the right to run it |
//! | `visit` | inline strands, run by the threads that submit |
//! | `lane` | ready strands and the threads that run them |
//! | `foreign` | threads of another language |
//! | `parallel` | one large operation shared out over idle workers |
//! | `point` | places on timelines, and waiting for them |
//! | `deadlock` | waits inside operations that could never end |
//! | `executor` | the whole, its start and its shutdown |
//!
//! Each module with a protocol opens with it.
//!
//! ```
//! use clika_executor::{Config, Executor, Native};
//!
//! let config = Config { workers: 2, host_threads: 8, reporter: Box::new(|_| {}), recruiter: None };
//! let executor = Executor::new(config)?;
//! let strand = executor.strand(Some("greeter"));
//! let (send, receive) = std::sync::mpsc::channel();
//! strand.push(Native::new(move || { let _ = send.send("hello"); Ok(()) }, None))?;
//! strand.point().wait().expect("not inside an operation").until(None);
//! assert_eq!(receive.recv()?, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(
    clippy::missing_const_for_thread_local,
    reason = "the model checkers' thread_local takes no const"
)]
#![cfg_attr(
    any(loom, shuttle),
    allow(
        clippy::absurd_extreme_comparisons,
        clippy::reversed_empty_ranges,
        reason = "models look once: a spin of theirs has no rounds"
    )
)]

mod call;
mod deadlock;
mod executor;
mod failure;
#[doc(hidden)]
pub mod faults;
mod foreign;
mod frames;
mod lane;
mod meter;
mod operation;
mod parallel;
mod point;
mod process;
mod strand;
#[doc(hidden)]
pub mod sync;
mod timeline;
pub mod trace;
mod visit;

#[cfg(test)]
mod tests;

pub use call::{Host, Mark, Native};
pub use executor::{Config, Executor, Refused, Reporter, TARGET};
pub use failure::{Epoch, Failure, Fault, Line, Origin, Reason, Site};
pub use foreign::{ForeignThread, Next};
pub use frames::is_inside;
pub use lane::Recruiter;
pub use meter::Stats;
pub use operation::{Kind, Operation};
pub use point::{AsyncWait, Deadlock, Point, Position, Wait};
pub use process::{generation, with_signals_blocked};
pub use strand::{Start, Strand};
pub use visit::{Inside, Visitor};
