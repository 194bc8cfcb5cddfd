//! Operations with declared accesses.

use std::marker::PhantomData;
use std::sync::Arc;

use clika_executor::trace::Description;
use clika_executor::{Failure, Fault, Kind, Operation, Point, Reason, Site, Start};

use crate::error::Error;
use crate::future::{Future, Value};
use crate::hazard;
use crate::inline::{self, Ran};
use crate::runtime::refused;
use crate::storage::{self, Claim, Held};
use crate::stream::Stream;

/// Where an operation runs.
pub(crate) trait Lane: Send + 'static {
    const KIND: Kind;
}

/// On a native worker.
pub(crate) struct OnWorker;
/// On a thread that may block.
pub(crate) struct OnHost;
/// On whichever thread reaches it: it is brief.
pub(crate) struct Anywhere;

impl Lane for OnWorker {
    const KIND: Kind = Kind::Native;
}

impl Lane for OnHost {
    const KIND: Kind = Kind::Host;
}

impl Lane for Anywhere {
    const KIND: Kind = Kind::Brief;
}

/// The claims of an operation.
pub trait Claims: AsRef<[Claim]> + Clone + Send + 'static {}

impl<C: AsRef<[Claim]> + Clone + Send + 'static> Claims for C {}

/// The line that submits an operation, as small as its language allows.
pub trait Place: Into<Site> + Clone + Send + 'static {}

impl<S: Into<Site> + Clone + Send + 'static> Place for S {}

/// What an operation does, at the bytes of its claims.
pub(crate) trait Work: FnOnce(&Held<'_>) -> Result<(), Reason> + Send + 'static {}

impl<W: FnOnce(&Held<'_>) -> Result<(), Reason> + Send + 'static> Work for W {}

struct Task<C, B, W, L, S> {
    claims: C,
    begin: B,
    work: W,
    site: S,
    name: &'static str,
    lane: PhantomData<L>,
}

impl<C: Claims, B, W: Work, L: Lane, S: Place> Operation for Task<C, B, W, L, S>
where
    B: FnOnce() -> bool + Send + 'static,
{
    const KIND: Kind = L::KIND;

    fn run(self) -> Result<(), Fault> {
        if (self.begin)() {
            perform(self.claims.as_ref(), self.site, self.work)
        } else {
            Ok(())
        }
    }

    fn skip(self, why: &Arc<Failure>) {
        storage::skip(self.claims.as_ref(), why);
    }

    fn describe(&self) -> Description {
        describe(L::KIND, self.name, self.site.clone(), self.claims.as_ref())
    }
}

/// What is told of an operation. Fills and copies are kinds of their own.
pub(crate) fn describe(
    kind: Kind,
    name: &'static str,
    site: impl Place,
    claims: &[Claim],
) -> Description {
    let kind = Description::of_kind(kind);
    Description {
        name: name.into(),
        category: if matches!(name, FILL | COPY) {
            name
        } else {
            kind.category
        },
        site: site.into(),
        bytes: storage::bytes(claims),
    }
}

/// The names of the runtime's own operations.
pub(crate) const FILL: &str = "fill";
pub(crate) const COPY: &str = "copy";

/// Does `work` at the bytes of `claims`.
pub(crate) fn perform(claims: &[Claim], site: impl Place, work: impl Work) -> Result<(), Fault> {
    let held = Held::begin(claims, site.clone(), None)?;
    let outcome = Fault::catch(site, || work(&held));
    held.end(outcome)
}

/// Submits an operation to a created stream, in the order that its claims ask for.
pub(crate) fn push(
    stream: &Stream,
    claims: &[Claim],
    operation: impl Operation,
) -> Result<(u64, Start), Error> {
    let push = |ahead| {
        stream
            .strand()
            .push_after(ahead, operation)
            .map_err(refused)
    };
    hazard::submit(stream, claims, push, |n| *n)
}

/// As [`push`]; the point that the operation ends at.
pub(crate) fn push_at(
    stream: &Stream,
    claims: &[Claim],
    operation: impl Operation,
) -> Result<(Point, Start), Error> {
    let strand = stream.strand();
    let push = |ahead| strand.push_at_after(ahead, operation).map_err(refused);
    hazard::submit(stream, claims, push, Point::n)
}

/// An operation to be submitted.
pub(crate) struct Submit<'a, C, S> {
    pub(crate) stream: &'a Stream,
    pub(crate) claims: C,
    pub(crate) site: S,
    /// Its name in a trace.
    pub(crate) name: &'static str,
}

impl<C: Claims, S: Place> Submit<'_, C, S> {
    /// Submits it. On the default stream it has run, and its failure is returned, acknowledged.
    pub(crate) fn run<L: Lane>(self, _lane: L, work: impl Work) -> Result<(), Error> {
        if self.stream.is_default() {
            return inline::settle(self.run_here(work)?);
        }
        // Kept, since the operation owns its own, and may be over before its position is noted.
        let (stream, claims) = (self.stream, self.claims.clone());
        push(stream, claims.as_ref(), self.task::<L>(|| true, work)).map(drop)
    }

    /// Submits it, for its value. Cancelling that comes too late once the work begins.
    pub(crate) fn call<L: Lane, T: Send + 'static>(
        self,
        _lane: L,
        value: Arc<Value<T>>,
        work: impl Work,
    ) -> Result<Future<T>, Error> {
        let stream = self.stream.clone();
        if stream.is_default() {
            return Ok(Future::of_ran(stream, self.run_here(work)?, value));
        }
        let claims = self.claims.clone();
        // Before it looks at the bytes: one that is cancelled fails by nothing.
        let place = value.clone();
        let task = self.task::<L>(move || place.begin(), work);
        let (point, start) = push_at(&stream, claims.as_ref(), task)?;
        drop(start);
        Ok(Future::new(stream, point, value))
    }

    /// Submits it to a created stream: the point that it ends at.
    pub(crate) fn push<L: Lane>(self, _lane: L, work: impl Work) -> Result<Point, Error> {
        let (stream, claims) = (self.stream, self.claims.clone());
        let task = self.task::<L>(|| true, work);
        let (point, start) = push_at(stream, claims.as_ref(), task)?;
        drop(start);
        Ok(point)
    }

    fn run_here(self, work: impl Work) -> Result<Ran, Error> {
        let claims = self.claims.as_ref();
        let (name, site) = (self.name, self.site.clone());
        let what = || describe(Kind::Visit, name, site, claims);
        inline::run_at(self.stream, claims, what, || {
            perform(claims, self.site, work)
        })
    }

    fn task<L: Lane>(
        self,
        begin: impl FnOnce() -> bool + Send + 'static,
        work: impl Work,
    ) -> impl Operation {
        Task {
            claims: self.claims,
            begin,
            work,
            site: self.site,
            name: self.name,
            lane: PhantomData::<L>,
        }
    }
}
