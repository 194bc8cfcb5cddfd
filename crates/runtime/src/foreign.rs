//! For bindings of other languages: what lies under streams and events.
//!
//! A binding runs its language's functions on threads that the language made (see
//! [`ForeignThread`]), keeps its own failures, and waits in its own way. Everybody else wants
//! [`Stream`], [`Event`] and [`Future`](crate::Future).

use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::error::Error;
use crate::event::Event;
use crate::runtime;
use crate::stream::Stream;
use crate::wait;

pub use crate::runtime::Binding;
pub use clika_executor::{
    Deadlock, Executor, Failure, Fault, ForeignThread, Host, Inside, Kind, Next, Operation, Origin,
    Point, Reason, Recruiter, Refused, Reporter, Strand, Visitor, Wait, generation,
};

/// The executor of this process, which is started by that.
///
/// # Errors
/// As for [`Stream::create`].
pub fn executor() -> Result<&'static Executor, Error> {
    Ok(&runtime::runtime()?.executor)
}

/// The executor of this process, if it has been started.
#[must_use]
pub fn started() -> Option<&'static Executor> {
    Some(&runtime::started()?.executor)
}

/// What a binding keeps per runtime: made at the first call, and made anew in a forked child.
///
/// # Errors
/// As for [`Stream::create`].
///
/// # Panics
/// If two bindings with different types are in one process.
pub fn state<T: Default + Send + Sync + 'static>() -> Result<&'static T, Error> {
    let binding = runtime::runtime()?
        .binding
        .get_or_init(|| Box::new(T::default()));
    Ok(binding
        .downcast_ref()
        .unwrap_or_else(|| panic!("one binding per process")))
}

/// How long pending work may go on at exit.
///
/// # Errors
/// As for [`Stream::create`].
pub fn exit_timeout() -> Result<Duration, Error> {
    Ok(runtime::runtime()?.settings.exit_timeout)
}

/// Installs the binding of this process. Only the first one counts, and only before the runtime is
/// used.
pub fn bind(binding: Binding) {
    runtime::bind(binding);
}

/// The cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    Device::cpu().compute_units()
}

/// The strand under `stream`, if nobody else holds a handle of it.
#[must_use]
pub fn sole_strand(stream: &Stream) -> Option<&Arc<Strand>> {
    stream.sole_strand()
}

/// The strand under a stream.
#[must_use]
pub fn strand(stream: &Stream) -> &Arc<Strand> {
    stream.strand()
}

/// The point under an event.
#[must_use]
pub fn point(event: &Event) -> &Point {
    event.point()
}

/// The error for a submission that was not accepted.
#[must_use]
pub fn refused(refused: Refused) -> Error {
    runtime::refused(refused)
}

/// The error for a wait for `point` that could never end.
#[must_use]
pub fn deadlock(point: &Point) -> Error {
    wait::deadlock(point)
}

/// The error for a wait for `point` that reached its time limit.
#[must_use]
pub fn timed_out(point: &Point) -> Error {
    wait::timed_out(point)
}
