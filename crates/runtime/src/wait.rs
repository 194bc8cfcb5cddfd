//! Waiting on the host, and what a wait returns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use clika_executor::{Failure, Point, Position, Reason, Refused, Strand};

use crate::error::{Cause, Error};
use crate::runtime::refused;
use crate::storage::Own;

/// Refuses what was inherited by a fork: waiting for it would never end, and the parent's threads
/// may have held its locks at that moment. Called before anything of it is looked at.
pub(crate) fn admit(strand: &Strand) -> Result<(), Error> {
    if strand.is_inherited() {
        return Err(refused(Refused::Inherited));
    }
    Ok(())
}

/// Blocks until `point` is reached.
pub(crate) fn until(point: &Point, deadline: Option<Instant>) -> Result<(), Error> {
    if reach(point.position(), deadline)? {
        return Ok(());
    }
    Err(timed_out(point))
}

/// Blocks until `position` is reached. `false`: the deadline passed first.
pub(crate) fn reach(position: &Position, deadline: Option<Instant>) -> Result<bool, Error> {
    let wait = position.wait();
    Ok(wait
        .map_err(|_| deadlock(position.strand()))?
        .until(deadline))
}

/// The error for a wait that reached its time limit.
pub(crate) fn timed_out(point: &Point) -> Error {
    let pending = point.strand().pending();
    let (operations, go) = match pending {
        1 => ("operation", "it goes"),
        _ => ("operations", "they go"),
    };
    Error::timeout(format!(
        "the time limit passed with {pending} {operations} of stream '{}' unfinished: {go} on",
        point.strand().name()
    ))
}

/// The error for a wait that could never end.
pub(crate) fn deadlock(strand: &Strand) -> Error {
    Error::deadlock(format!(
        "this would wait for itself: the work that makes this call is what stream '{}' is waiting \
         for. Return from it first, or order the work with wait_event",
        strand.name()
    ))
}

/// What a reached point amounts to.
pub(crate) struct Settled;

impl Settled {
    /// The failure that `point` covers, acknowledged.
    pub(crate) fn acknowledging(point: &Point) -> Result<(), Error> {
        let outcome = Self::of(point);
        if outcome.is_err() {
            point.acknowledge();
        }
        outcome
    }

    /// The failure that `point` covers.
    pub(crate) fn of(point: &Point) -> Result<(), Error> {
        point
            .failure()
            .map_or(Ok(()), |failure| Err(failed(&failure)))
    }
}

/// A failure in words. The error of a user's may panic when it is printed.
pub(crate) fn describe(failure: &Failure) -> String {
    let print = AssertUnwindSafe(|| failure.to_string());
    catch_unwind(print).unwrap_or_else(|payload| {
        let panicked = Reason::from_panic(payload);
        format!("{} failed; printing its error {panicked}", failure.origin)
    })
}

/// The error for a failure.
pub(crate) fn failed(failure: &Arc<Failure>) -> Error {
    let cause = match &failure.reason {
        Reason::Returned(error) => match error.downcast_ref::<Own>() {
            // What the runtime itself found keeps its kind.
            Some(Own(error)) => return error.in_operation(describe(failure)),
            None => Some(error.clone()),
        },
        Reason::ShutDown => return Error::cancelled(describe(failure), None),
        Reason::Panicked(_) | Reason::Foreign(..) => None,
    };
    Error::operation(describe(failure), cause)
}

/// The error for work that was skipped because of a failure.
pub(crate) fn skipped(failure: &Arc<Failure>) -> Error {
    if matches!(failure.reason, Reason::ShutDown) {
        return failed(failure);
    }
    let cause: Cause = Arc::new(failed(failure));
    Error::cancelled(
        "the work was skipped, because earlier work failed",
        Some(cause),
    )
}
