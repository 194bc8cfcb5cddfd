//! Tests of the executor through its public interface.
//!
//! A test that proves a promise of the contract carries its number: `promise_07_…`. They run with
//! as many workers as the environment variable `CLIKA_WORKERS` says, and all end by themselves: a
//! watchdog names what hangs.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests stand outside of what the bans are there for: a panic is how they fail"
)]

#[cfg(unix)]
mod child;
mod deadlock;
mod failure;
mod foreign;
mod host;
mod lifetime;
mod order;
mod parallel;
mod positions;
#[cfg(unix)]
mod process;
mod programs;
#[cfg(target_os = "linux")]
mod rest;
mod shutdown;
mod stress;
mod support;
mod visit;
mod wait;
