//! Failures, and the epochs that carry at most one of them each.
//!
//! The first operation that fails in an epoch stays its only failure. Everything later in that
//! epoch is skipped, and every point of it at or behind the failed operation is a failed point.
//! Acknowledging opens the next epoch; points of the old one stay what they were, which is why a
//! [`Point`](crate::Point) names its epoch.
//!
//! Protocol: only the holder of a strand's turn fails its epoch, before the timeline reaches the
//! failed operation. So whoever sees a point reached also sees its failure.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Weak};

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// The line that submitted an operation.
#[derive(Clone, Debug, Default)]
pub enum Site {
    /// It is not known.
    #[default]
    Unknown,
    /// A line of Rust.
    Rust(&'static Location<'static>),
    /// A line of another language.
    Foreign(Arc<Line>),
}

/// A line of source code.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The file, as its language names it.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u32,
}

impl From<Option<&'static Location<'static>>> for Site {
    fn from(location: Option<&'static Location<'static>>) -> Self {
        location.map_or(Self::Unknown, Self::Rust)
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Self {
        Self::Rust(location)
    }
}

impl Site {
    /// The file and the number of the line.
    #[must_use]
    pub fn line(&self) -> Option<(&str, u32)> {
        match self {
            Self::Unknown => None,
            Self::Rust(location) => Some((location.file(), location.line())),
            Self::Foreign(line) => Some((&line.file, line.line)),
        }
    }
}

/// Why an operation did not do its work.
pub enum Reason {
    /// It panicked with this message.
    Panicked(String),
    /// It returned this error.
    Returned(Arc<dyn Error + Send + Sync>),
    /// It failed in another language, which left this value, and says so in short.
    Foreign(Box<dyn Any + Send + Sync>, String),
    /// The executor shut down before it could run.
    ShutDown,
}

impl Reason {
    /// The reason that a caught panic gives.
    #[must_use]
    pub fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload
            .downcast_ref::<&'static str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        discard(payload);
        Self::Panicked(text)
    }
}

/// Runs `f`, and lets no panic out: neither its own, nor one of what that leaves to be dropped.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        discard(payload);
    }
}

/// Drops what a panic carried, and what comes of it should that panic too. Whoever goes on like this
/// is left alone.
pub(crate) fn discard(mut payload: Box<dyn Any + Send>) {
    for _ in 0..4 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    let _ = ManuallyDrop::new(payload);
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Returned(error) => write!(f, "failed: {error}"),
            Self::Foreign(_, what) => write!(f, "failed: {what}"),
            Self::ShutDown => f.write_str("was dropped: the runtime shut down first"),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({self})")
    }
}

/// What an operation that failed hands to its strand.
pub struct Fault {
    cause: Cause,
    heir: Option<Heir>,
}

/// Where a fault comes from.
enum Cause {
    /// The operation itself, submitted there.
    Own(Reason, Site),
    /// A failure before it, which it cannot do without.
    Passed(Arc<Failure>),
}

/// Told of the failure that a fault becomes, before anybody can see that.
type Heir = Box<dyn FnOnce(&Arc<Failure>) + Send>;

impl Fault {
    /// An operation that was submitted at `site` failed for this reason.
    #[must_use]
    pub fn new(reason: Reason, site: impl Into<Site>) -> Self {
        Self {
            cause: Cause::Own(reason, site.into()),
            heir: None,
        }
    }

    /// Calls `work`, the function of an operation that was submitted at `site`: its error or its panic
    /// is the fault.
    ///
    /// # Errors
    /// The fault.
    #[inline]
    pub fn catch(
        site: impl Into<Site>,
        work: impl FnOnce() -> Result<(), Reason>,
    ) -> Result<(), Self> {
        catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|payload| Err(Reason::from_panic(payload)))
            .map_err(|reason| Self::new(reason, site))
    }

    /// An operation could not run because of an earlier failure, which its strand fails with too.
    #[must_use]
    pub fn passed(failure: Arc<Failure>) -> Self {
        Self {
            cause: Cause::Passed(failure),
            heir: None,
        }
    }

    /// Calls `heir` with the failure that this becomes, before the operation counts as done, and after
    /// those that it was left to before. It must be brief.
    #[must_use]
    pub fn left_to(self, heir: impl FnOnce(&Arc<Failure>) + Send + 'static) -> Self {
        let heir: Heir = match self.heir {
            None => Box::new(heir),
            Some(first) => Box::new(move |failure| {
                contain(|| first(failure));
                heir(failure);
            }),
        };
        Self {
            heir: Some(heir),
            ..self
        }
    }

    /// The failure of the operation at `origin`, which knows all but the site.
    pub(crate) fn settle(self, origin: impl FnOnce(Site) -> Origin) -> Arc<Failure> {
        let failure = match self.cause {
            Cause::Own(reason, site) => Failure::new(reason, origin(site)),
            Cause::Passed(failure) => failure,
        };
        if let Some(heir) = self.heir {
            contain(|| heir(&failure));
        }
        failure
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Own(reason, _) => write!(f, "Fault({reason})"),
            Cause::Passed(failure) => write!(f, "Fault({failure})"),
        }
    }
}

/// Which operation failed.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The id of its strand.
    pub strand_id: u64,
    /// The name of its strand.
    pub strand: String,
    /// Its number on the strand's timeline, from 1.
    pub operation: u64,
    /// The line that submitted it.
    pub site: Site,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "operation {} of stream '{}'",
            self.operation, self.strand
        )?;
        match self.site.line() {
            Some((file, line)) => write!(f, ", submitted at {file}:{line}"),
            None => Ok(()),
        }
    }
}

/// One failure. Every strand that fails because of it shares it.
#[derive(Debug)]
pub struct Failure {
    /// Why the operation failed.
    pub reason: Reason,
    /// Which operation it was.
    pub origin: Origin,
    acknowledged: Arc<AtomicBool>,
}

impl Failure {
    pub(crate) fn new(reason: Reason, origin: Origin) -> Arc<Self> {
        Arc::new(Self {
            reason,
            origin,
            acknowledged: Arc::new(AtomicBool::new(false)),
        })
    }

    /// The same failure once more, which holds its reason itself: for an owner that a garbage collector
    /// knows.
    #[must_use]
    pub fn twin(&self, reason: Reason) -> Arc<Self> {
        Arc::new(Self {
            reason,
            origin: self.origin.clone(),
            acknowledged: self.acknowledged.clone(),
        })
    }

    /// Notes that somebody saw it; true for the first who does.
    pub fn acknowledge(&self) -> bool {
        !self.acknowledged.swap(true, Ordering::AcqRel)
    }
}

impl Drop for Failure {
    /// Whichever thread comes last drops an error of the user's, which must not harm that thread.
    fn drop(&mut self) {
        let reason = std::mem::replace(&mut self.reason, Reason::ShutDown);
        contain(|| drop(reason));
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.origin, self.reason)
    }
}

const NOT_FAILED: u64 = u64::MAX;

/// A stretch of a timeline that carries at most one failure.
pub struct Epoch {
    failed_at: AtomicU64,
    failure: Mutex<Option<Arc<Failure>>>,
}

impl Epoch {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            failed_at: AtomicU64::new(NOT_FAILED),
            failure: Mutex::new(None),
        })
    }

    /// Fails the epoch at operation `n`, unless it failed before.
    pub(crate) fn fail(&self, n: u64, failure: Arc<Failure>) {
        let mut slot = self.failure.lock();
        if slot.is_none() {
            *slot = Some(failure);
            self.failed_at.store(n, Ordering::Release);
        }
    }

    /// The failure, if operation `n` of this epoch is the failed one or behind it.
    #[inline]
    pub(crate) fn failure_at(&self, n: u64) -> Option<Arc<Failure>> {
        if self.failed_at.load(Ordering::Acquire) > n {
            return None;
        }
        self.failure.lock().clone()
    }

    /// Calls `f` with the failure, if nobody else holds it.
    pub(crate) fn with_sole_failure<R>(&self, f: impl FnOnce(&Failure) -> R) -> Option<R> {
        let slot = self.failure.lock();
        slot.as_ref()
            .filter(|failure| Arc::strong_count(failure) == 1)
            .map(|failure| f(failure))
    }

    /// The failure, wherever it is.
    pub(crate) fn failure(&self) -> Option<Arc<Failure>> {
        self.failure_at(NOT_FAILED - 1)
    }
}

/// The failures that nobody has acknowledged yet, for the report at the end.
#[derive(Default)]
pub(crate) struct Unacknowledged(Vec<Weak<Failure>>);

impl Unacknowledged {
    const PRUNED_FROM: usize = 64;

    pub(crate) fn add(&mut self, failure: &Arc<Failure>) {
        if self.0.len() >= Self::PRUNED_FROM && self.0.len() == self.0.capacity() {
            self.0.retain(|entry| entry.strong_count() > 0);
        }
        self.0.push(Arc::downgrade(failure));
    }

    pub(crate) fn take(&mut self) -> Vec<Arc<Failure>> {
        self.0
            .drain(..)
            .filter_map(|entry| entry.upgrade())
            .collect()
    }
}
