//! The promises to a user of Rust, one module for each concept. A test's name carries the number of
//! the promise that it proves.
//!
//! The tests hold for any `CLIKA_WORKERS`; where one needs a certain number, or a process that it
//! may end or fork, it runs itself again in a process of its own.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(unix)]
#[path = "../shared/child.rs"]
mod child;
mod deadlock;
mod default_stream;
mod device;
mod drops;
mod event;
mod failure;
mod fork;
mod future;
#[path = "../shared/gate.rs"]
mod gate;
mod host_work;
mod joined;
mod log;
mod many_streams;
mod order;
mod panic;
#[path = "../shared/process.rs"]
mod process;
mod report;
#[cfg(target_os = "linux")]
#[path = "../../../executor/tests/executor/rest.rs"]
mod rest;
mod scarce;
#[path = "../shared/scarcity.rs"]
mod scarcity;
mod shutdown;
mod stream;
mod threads;
mod wait;
#[path = "../shared/waiting.rs"]
mod waiting;
#[path = "../shared/watchdog.rs"]
mod watchdog;

use clika_runtime::{Device, Stream};

/// A fresh stream on the CPU.
fn stream() -> Stream {
    Stream::create(Device::cpu()).unwrap()
}
