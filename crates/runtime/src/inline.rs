//! Work on the default stream, which the calling thread runs itself.

use std::panic::Location;
use std::sync::Arc;

use clika_executor::trace::Description;
use clika_executor::{Failure, Fault, Kind, Point, Reason, Visitor};

use crate::error::Error;
use crate::hazard::{self, Positions, Submission};
use crate::runtime::refused;
use crate::storage::{self, Claim};
use crate::stream::Stream;
use crate::task::describe;
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
    name: &'static str,
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Result<(), Error> {
    settle(run(stream, name, site, work)?)
}

/// The failure of what has run, acknowledged.
pub(crate) fn settle(ran: Ran) -> Result<(), Error> {
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
    name: &'static str,
    site: &'static Location<'static>,
    work: impl FnOnce() -> Result<(), Reason>,
) -> Result<Ran, Error> {
    let what = || describe(Kind::Visit, name, site, &[]);
    run_at(stream, &[], what, || Fault::catch(site, work))
}

/// As [`run`], for work at the bytes of `claims`, which lets no panic out. `what` tells a trace of it.
pub(crate) fn run_at(
    stream: &Stream,
    claims: &[Claim],
    what: impl FnOnce() -> Description,
    work: impl FnOnce() -> Result<(), Fault>,
) -> Result<Ran, Error> {
    wait::admit(stream.strand())?;
    match stream.strand().inside() {
        Some(n) => run_within(stream, n, claims, work),
        None => Ok(run_in_turn(
            stream,
            enter(stream, claims)?,
            claims,
            what,
            work,
        )),
    }
}

/// Takes a place in the stream's order, behind what the claims must come after.
pub(crate) fn enter(stream: &Stream, claims: &[Claim]) -> Result<Visitor, Error> {
    let strand = stream.strand();
    let visit = |ahead| {
        let visit = strand.visit_after(ahead).map_err(refused)?;
        visit.map_err(|_| wait::deadlock(strand))
    };
    let number = |visitor: &Visitor| visitor.point().n();
    let (visitor, start) = hazard::submit(stream, claims, visit, number)?;
    drop(start);
    Ok(visitor)
}

fn run_in_turn(
    stream: &Stream,
    visitor: Visitor,
    claims: &[Claim],
    what: impl FnOnce() -> Description,
    work: impl FnOnce() -> Result<(), Fault>,
) -> Ran {
    let strand = stream.strand();
    visitor.until(None);
    let point = visitor.point().clone();
    let inside = match visitor.enter_as(what) {
        Ok(inside) => inside,
        Err(failure) => {
            storage::skip(claims, &failure);
            let failure = Some(Why::Skipped(failure));
            return Ran { point, failure };
        }
    };
    let outcome = work();
    // Asked inside: if the work has acknowledged a failure of its own, it is in the next epoch now,
    // and that failure is over.
    let point = strand.point();
    let failure = match outcome {
        Ok(()) => point.failure(),
        Err(fault) => Some(strand.fail_within(point.n(), fault)),
    };
    inside.finish(Ok(()));
    let failure = failure.map(Why::Failed);
    Ran { point, failure }
}

/// Work from inside the stream's own work is part of the enclosing operation `n`.
fn run_within(
    stream: &Stream,
    n: u64,
    claims: &[Claim],
    work: impl FnOnce() -> Result<(), Fault>,
) -> Result<Ran, Error> {
    let strand = stream.strand();
    // Also for what is skipped: nobody is at what it should have written any more.
    enter_within(stream, n, claims)?;
    let point = strand.point();
    if let Some(failure) = point.failure() {
        storage::skip(claims, &failure);
        let failure = Some(Why::Skipped(failure));
        return Ok(Ran { point, failure });
    }
    let outcome = work().err();
    let failure = outcome.map(|fault| Why::Failed(strand.fail_within(n, fault)));
    Ok(Ran { point, failure })
}

/// Waits for what the claims of work inside operation `n` must come after.
fn enter_within(stream: &Stream, n: u64, claims: &[Claim]) -> Result<(), Error> {
    loop {
        let ahead = order_within(stream, n, claims)?;
        if ahead.is_empty() {
            return Ok(());
        }
        for position in &ahead {
            wait::reach(position, None)?;
        }
    }
}

/// Notes that operation `n`, which the caller is inside of, is at these claims, once there is nothing to
/// wait for; until then, what that is. Not before: whoever gives up waiting would leave behind that
/// others come after `n`, and through it no more after what is still under way.
pub(crate) fn order_within(stream: &Stream, n: u64, claims: &[Claim]) -> Result<Positions, Error> {
    let strand = stream.strand();
    let submission = Submission::begin(stream.device(), claims)?;
    let ahead = submission.ahead(strand);
    if ahead.is_empty() {
        submission.record(strand, n);
    }
    Ok(ahead)
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
