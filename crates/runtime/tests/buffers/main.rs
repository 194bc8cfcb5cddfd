//! Buffers: order without asking, memory, failed data.
//!
//! * [`basics`]: each operation once.
//! * [`order`]: what waits for what, and what does not.
//! * [`input`]: every size, offset and element, also those that cannot be.
//! * [`programs`]: random programs against a sequential model.
//! * [`stress`]: many operations, streams and threads.
//! * [`faults`]: memory and threads that cannot be had.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod basics;
#[path = "../shared/check.rs"]
mod check;
#[cfg(unix)]
#[path = "../shared/child.rs"]
mod child;
#[cfg(debug_assertions)]
mod faults;
#[path = "../shared/gate.rs"]
mod gate;
mod input;
#[path = "../promises/joined.rs"]
mod joined;
mod order;
#[path = "../shared/process.rs"]
#[expect(dead_code, reason = "the tests of the promises use all of it")]
mod process;
mod programs;
#[path = "../shared/scarcity.rs"]
mod scarcity;
#[path = "../shared/stage.rs"]
mod stage;
mod stress;
#[path = "../shared/waiting.rs"]
#[expect(dead_code, reason = "the tests of the promises use all of it")]
mod waiting;
#[path = "../shared/watchdog.rs"]
mod watchdog;
#[path = "../shared/work.rs"]
mod work;

use clika_runtime::{Buffer, Device, Stream};

const CPU: Device = Device::cpu();

/// A fresh stream on the CPU.
fn stream() -> Stream {
    Stream::create(CPU).unwrap()
}

/// The default stream of the CPU.
fn default_stream() -> Stream {
    Stream::default_stream(CPU).unwrap()
}

/// A buffer that nothing was written to.
fn fresh(nbytes: usize) -> Buffer {
    Buffer::new(CPU, nbytes).unwrap()
}

/// A buffer that holds these bytes.
fn holding(bytes: &[u8]) -> Buffer {
    Buffer::from_slice(CPU, bytes).unwrap()
}

/// Bytes in use.
fn live_bytes() -> usize {
    CPU.memory_stats().unwrap().live_bytes
}
