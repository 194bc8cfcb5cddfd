//! Work on the default stream, which the calling thread runs itself.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use clika_executor::{Failure, Fault, Point, Reason};

use crate::error::Error;
use crate::runtime::refused;
use crate::stream::Stream;
use crate::wait::{self, Settled};

/// An operation that has run, or was skipped, on the calling thread.
pub(crate) struct Ran {
    /// The point that it ends at; inside the stream's own work, the end of the enclosing operation.
    pub(crate) point: Point,
    /// Why it did not do its work.
    pub(crate) failure: Option<Why>,
}

/// Why an operation did not do its work.
#[derive(Clone)]
pub(crate) enum Why {
    /// It failed itself, or work inside it did.
    Failed(Arc<Failure>),
    /// Something before it failed.
    Skipped(Arc<Failure>),
}

/// Runs `work` and returns its failure, acknowledged.
pub(crate) fn submit(
    stream: &Stream,
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Result<(), Error> {
    let ran = run(stream, site, work)?;
    match ran.failure {
        None => Ok(()),
        Some(Why::Skipped(failure)) => Err(wait::skipped(&failure)),
        Some(Why::Failed(failure)) => {
            ran.point.acknowledge();
            Err(wait::failed(&failure))
        }
    }
}

/// Runs `work` in the stream's order, once it is this thread's turn.
pub(crate) fn run(
    stream: &Stream,
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Result<Ran, Error> {
    wait::admit(stream.strand())?;
    match stream.strand().inside() {
        Some(n) => Ok(run_within(stream, n, site, work)),
        None => run_in_turn(stream, site, work),
    }
}

fn run_in_turn(
    stream: &Stream,
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Result<Ran, Error> {
    let strand = stream.strand();
    let visitor = strand
        .visit()
        .map_err(refused)?
        .map_err(|_| wait::deadlock(&strand.point()))?;
    visitor.until(None);
    let point = visitor.point().clone();
    match visitor.enter() {
        Err(failure) => Ok(Ran {
            point,
            failure: Some(Why::Skipped(failure)),
        }),
        Ok(inside) => {
            let outcome = guarded(site, work);
            // Asked inside: if the work has acknowledged a failure of its own, it is in the next
            // epoch now, and that failure is over.
            let point = strand.point();
            let failure = match outcome {
                Ok(()) => point.failure(),
                Err(fault) => Some(strand.fail_within(point.n(), fault)),
            };
            inside.finish(Ok(()));
            Ok(Ran {
                point,
                failure: failure.map(Why::Failed),
            })
        }
    }
}

/// Work from inside the stream's own work is part of the enclosing operation `n`.
fn run_within(
    stream: &Stream,
    n: u64,
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Ran {
    let point = stream.strand().point();
    let failure = match point.failure() {
        Some(failure) => Some(Why::Skipped(failure)),
        None => guarded(site, work)
            .err()
            .map(|fault| Why::Failed(stream.strand().fail_within(n, fault))),
    };
    Ran { point, failure }
}

fn guarded(
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Result<(), Fault> {
    let fault = |reason| Fault::new(reason, Some(site));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(fault),
        Err(payload) => Err(fault(Reason::from_panic(payload))),
    }
}

/// Makes what is submitted from here on wait for `point`.
pub(crate) fn wait_for(stream: &Stream, point: &Point) -> Result<(), Error> {
    let strand = stream.strand();
    wait::admit(strand)?;
    wait::admit(point.strand())?;
    if stream.is_default() && strand.inside().is_some() {
        if Arc::ptr_eq(strand, point.strand()) {
            return Ok(());
        }
        // Part of the enclosing operation: what follows it in that operation must not run before.
        wait::until(point, None)?;
        return Settled::of(point);
    }
    strand.wait_for(point).map_err(refused)
}
