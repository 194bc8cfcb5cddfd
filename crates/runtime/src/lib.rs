//! Execution streams: ordered, asynchronous queues of device work.
//!
//! ```
//! use clika_runtime::{Device, Stream};
//!
//! let (decode, encode) = (Stream::create(Device::cpu())?, Stream::create(Device::cpu())?);
//! let text = decode.call(|| String::from("pixels"))?;
//! encode.wait_stream(&decode)?;
//! encode.submit(|| println!("everything that decode had to do is done"))?;
//! assert_eq!(text.wait()?, "pixels");
//! encode.synchronize()?;
//! # Ok::<(), clika_runtime::Error>(())
//! ```
//!
//! # Concepts
//! A [`Device`] computes. A [`Stream`] is an ordered queue of operations on one device; streams
//! overlap. An [`Event`] is a point on a stream's timeline that the host or other streams wait for.
//! A [`Future`] is the value of one submitted function. A [`Buffer`] is memory that streams share:
//! operations on it say what they read and write, and need no event. The first failure of a stream wins and
//! stays with it until it is acknowledged; [`Error`] says which operation failed and which line
//! submitted it.
//!
//! # Settings
//! Read once, when the first stream is made:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `CLIKA_WORKERS` | the cores this process may use | threads that run native work |
//! | `CLIKA_HOST_THREADS` | 512 | blocking functions that may be under way at once |
//! | `CLIKA_EXIT_TIMEOUT` | 5 | seconds that pending work may go on at exit, from Python |
//! | `CLIKA_TRACE` | none | the file that a [`trace()`] of all streams is written to |
//!
//! # Logging
//! The runtime tells of itself to the subscriber of the `tracing` crate, if there is one: debug events when
//! streams are made and dropped, operations fail, threads begin and end; warnings when work is lost.
//! Their targets begin with `clika_runtime`. A subscriber is called where the event happens, perhaps inside
//! an operation, so it must not wait for streams.
//!
//! # Forks
//! A forked child that uses an inherited stream gets a device error at once. It can create its own.

mod access;
mod aside;
mod buffer;
mod cpu;
mod device;
mod error;
mod event;
pub mod foreign;
mod future;
mod hazard;
mod inline;
mod lines;
mod outcome;
mod pool;
mod roster;
mod runtime;
mod settings;
mod stats;
mod storage;
mod stream;
mod task;
mod trace;
mod transfer;
mod view;
mod wait;

#[cfg(test)]
mod tests;

pub use access::{Access, Accesses, Read, Update, Write};
pub use buffer::Buffer;
pub use device::{Device, DeviceKind, devices};
pub use error::Error;
pub use event::{Event, EventWait};
pub use future::{Future, FutureWait};
pub use outcome::Outcome;
pub use pool::MemoryStats;
pub use runtime::shutdown;
pub use stats::{Stats, StreamStats, stats};
pub use stream::{Stream, StreamWait};
pub use trace::{Trace, trace};
pub use transfer::Pattern;
pub use view::{View, ViewMut};

/// The examples of the README and of the site's pages run with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/rust.md")]
struct Pages;
