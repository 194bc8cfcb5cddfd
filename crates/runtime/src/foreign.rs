//! For bindings of other languages: what lies under streams and events.
//!
//! A binding runs its language's functions on threads that the language made (see
//! [`ForeignThread`]), keeps its own failures, and waits in its own way. Everybody else wants
//! [`Stream`], [`Event`] and [`Future`](crate::Future).

use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Error;
use crate::event::Event;
use crate::hazard::Access;
use crate::inline;
use crate::runtime;
use crate::storage::{self, Claim, Held};
use crate::stream::Stream;
use crate::wait;

pub use crate::aside::{current_function, enter_function, leave_function, number_function};
pub use crate::hazard::Positions;
pub use crate::runtime::Binding;
pub use crate::storage::Missing;
pub use crate::transfer::{Transfer, TransferAside, Wanted};
pub use crate::view::{RawView, ViewRequest};
#[doc(hidden)]
pub use clika_executor::faults;
pub use clika_executor::trace;
pub use clika_executor::{
    Deadlock, Executor, Failure, Fault, ForeignThread, Host, Inside, Kind, Line, Next, Operation,
    Origin, Point, Position, Reason, Recruiter, Refused, Reporter, Site, Start, Strand, Visitor,
    Wait, generation,
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

/// The error for a wait for something of `strand`'s that could never end.
#[must_use]
pub fn deadlock(strand: &Strand) -> Error {
    wait::deadlock(strand)
}

/// Ends the trace of this process, if one is being written.
///
/// # Errors
/// As for [`Trace::stop`](crate::Trace::stop).
pub fn stop_trace() -> Result<(), Error> {
    crate::trace::stop()
}

/// The error for a failure that is not of the binding's own language.
#[must_use]
pub fn failed(failure: &Arc<Failure>) -> Error {
    wait::failed(failure)
}

/// The error for a wait for `point` that reached its time limit.
#[must_use]
pub fn timed_out(point: &Point) -> Error {
    wait::timed_out(point)
}

/// The buffers among the arguments of a function of another language, which it may read and write.
pub struct Arguments(Vec<Claim>);

impl Arguments {
    /// These buffers, each once.
    #[must_use]
    pub fn new<'a>(buffers: impl IntoIterator<Item = &'a Buffer>) -> Self {
        let claim = |buffer: &Buffer| buffer.claim(Access::Patch);
        let mut claims: Vec<Claim> = buffers.into_iter().map(claim).collect();
        claims.sort_unstable_by_key(|claim| claim.storage.id());
        claims.dedup_by_key(|claim| claim.storage.id());
        Self(claims)
    }

    /// The sizes of all of them, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        storage::bytes(&self.0)
    }

    /// Submits `operation` to a created stream, in the order that the buffers ask for. The stream goes
    /// on once the second value is dropped.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn push<T: Operation>(&self, stream: &Stream, operation: T) -> Result<(u64, Start), Error> {
        crate::task::push(stream, &self.0, operation)
    }

    /// Takes a place in the order of a default stream.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn enter(&self, stream: &Stream) -> Result<Visitor, Error> {
        inline::enter(stream, &self.0)
    }

    /// Makes the function part of operation `n` of a default stream, which the caller is inside of.
    /// What is to be waited for before this is tried again: it is done when that is nothing.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn enter_within(&self, stream: &Stream, n: u64) -> Result<Positions, Error> {
        inline::order_within(stream, n, &self.0)
    }

    /// Begins the function, as operation `n` of a strand: access to the buffers is direct until it
    /// ends.
    ///
    /// # Errors
    /// The fault that it is to be ended with, without having run.
    pub fn begin(self, strand: &Strand, n: u64, site: Site) -> Result<Using, Fault> {
        Held::begin(&self.0, site, Some((strand.id(), n)))?.leave_to_owner();
        Ok(Using(self.0))
    }

    /// The function is skipped because of `why`.
    pub fn skip(&self, why: &Arc<Failure>) {
        storage::skip(&self.0, why);
    }
}

/// A function at the buffers among its arguments. Dropping it ends that without an outcome.
pub struct Using(Vec<Claim>);

impl Using {
    /// Ends the function. The fault that it gives out takes the buffers along, each with a `reason` of
    /// its own.
    ///
    /// # Errors
    /// The given fault.
    pub fn end(
        mut self,
        outcome: Result<(), Fault>,
        reason: impl Fn() -> Reason,
    ) -> Result<(), Fault> {
        let claims = std::mem::take(&mut self.0);
        drop(Held::taken_over(&claims));
        outcome.map_err(|fault| {
            let reasons = claims.iter().map(|_| reason()).collect();
            storage::failing_apart(claims, fault, reasons)
        })
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if self.0.iter().all(|claim| !claim.storage.is_inherited()) {
            drop(Held::taken_over(&self.0));
        }
    }
}

impl std::fmt::Debug for Using {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Using({} buffers)", self.0.len())
    }
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arguments({} buffers)", self.0.len())
    }
}

/// Calls `f` with the failure of a buffer that has no other handle and no user, if nobody else holds
/// that failure. Whoever owns the handle then owns the failure, as a garbage collector counts.
///
/// A handle that another thread uses meanwhile without a clone must not be collected.
pub fn with_sole_failure<R>(buffer: &Buffer, f: impl FnOnce(&Failure) -> R) -> Option<R> {
    buffer.storage().with_sole_failure(f)
}

/// Lets go of such a failure, where the collector has found that nobody can reach the buffer.
pub fn forget_sole_failure(buffer: &Buffer) {
    if with_sole_failure(buffer, |_| ()).is_some() {
        buffer.storage().forget_failure();
    }
}
