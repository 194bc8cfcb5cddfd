//! Our own streams, as the measures see them.

#![expect(clippy::expect_used, reason = "a measure stops at the first surprise")]

use std::sync::Arc;

use clika_runtime::{Device, Event, Stream};

use super::peer::{Gate, Peer, Queue};

const NO_FAILURE: &str = "no operation of a measure fails";

/// The CPU and its streams.
#[derive(Clone, Copy, Debug)]
pub struct Clika(Device);

impl Peer for Clika {
    type Queue = ClikaStream;

    fn start() -> Self {
        Self(Device::cpu())
    }

    fn queue(&self) -> ClikaStream {
        ClikaStream(Stream::create(self.0).expect("the CPU has streams"))
    }
}

/// One stream.
#[derive(Clone, Debug)]
pub struct ClikaStream(Stream);

impl Queue for ClikaStream {
    type Event = Event;

    fn submit(&self, operation: impl FnOnce() + Send + 'static) {
        self.0.submit(operation).expect(NO_FAILURE);
    }

    fn drain(&self) {
        self.0.synchronize().expect(NO_FAILURE);
    }

    fn round_trip(&self) {
        self.0.record_timed_event().expect(NO_FAILURE);
        self.drain();
    }

    fn record(&self) -> Event {
        self.0.record_event()
    }

    fn wait(&self, event: Event) {
        self.0.wait_event(&event).expect(NO_FAILURE);
    }

    fn hold(&self) -> Box<dyn FnOnce()> {
        let gate = Arc::new(Gate::default());
        let held = Arc::clone(&gate);
        // It blocks its thread, so it belongs on the host lane.
        self.0.submit_host(move || held.pass()).expect(NO_FAILURE);
        Box::new(move || gate.open())
    }
}
