//! Tests of the inside: models of the protocols, and what the public interface cannot reach.

#[cfg(all(unix, not(any(loom, shuttle))))]
mod inherited;
#[cfg(loom)]
mod loom_deadlock;
#[cfg(loom)]
mod loom_failure;
#[cfg(loom)]
mod loom_foreign;
#[cfg(loom)]
mod loom_lane;
#[cfg(loom)]
mod loom_parallel;
#[cfg(loom)]
mod loom_strand;
#[cfg(loom)]
mod loom_support;
#[cfg(loom)]
mod loom_timeline;
#[cfg(loom)]
mod loom_visit;
#[cfg(shuttle)]
mod shuttle_programs;
#[cfg(not(any(loom, shuttle)))]
mod threads;
