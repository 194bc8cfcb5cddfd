//! The promises to a user of Rust, one module for each concept. A test's name carries the number of
//! the promise that it proves.
//!
//! The tests hold for any `CLIKA_WORKERS`; where one needs a certain number, or a process that it
//! may end or fork, it runs itself again in a process of its own.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod deadlock;
mod default_stream;
mod device;
mod drops;
mod event;
mod failure;
mod fork;
mod future;
mod gate;
mod host_work;
mod joined;
mod log;
mod many_streams;
mod order;
mod panic;
mod process;
mod report;
mod scarce;
mod shutdown;
mod stream;
mod threads;
mod wait;
mod watchdog;

use clika_runtime::{Device, Stream};

/// A fresh stream on the CPU.
fn stream() -> Stream {
    Stream::create(Device::cpu()).unwrap()
}
