//! Order without asking: which operations on shared bytes wait for which.
//!
//! # Protocol
//! Each storage remembers who wrote it last and who has read it since, as positions on timelines.
//! Submitting an operation
//! 1. locks the orders of all the storages that it touches, by their ids, so that no two
//!    submissions lock each other out;
//! 2. refuses what may not be: reading what nobody writes, writing what somebody views;
//! 3. collects the positions that it must come after: the last write, and if it writes itself the
//!    reads since; its own stream's and those already reached drop out;
//! 4. pushes the operation behind a wait for them, which may be refused: nothing has changed then;
//! 5. notes its own position in each storage, and lets go of the locks.
//!
//! So every position that an operation waits for was pushed before it, and no cycle can arise. Two
//! submissions that share a storage agree on their order for every storage that they share.
//!
//! Whoever runs behind these waits sees all writes before them: that is what a reached position means.
//!
//! Failures do not travel along these waits, which are for order alone: they lie with the bytes. See
//! [`storage`](crate::storage).
//!
//! # What is remembered
//! Reads that are reached or that a later read of the same stream covers are forgotten now and then,
//! so a storage that ten thousand streams read stays small. Of the writes, those that are not reached
//! are kept, one for each stretch between two submitted functions: a function that looks at a storage
//! which is none of its arguments waits for what was written before the function was submitted, and
//! for nothing behind it.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clika_executor::sync::{Apart, MutexGuard};
use clika_executor::{Position, Start, Strand};
use smallvec::SmallVec;

use crate::device::Device;
use crate::error::Error;
use crate::storage::{Claim, Storage, never_written};
use crate::stream::Stream;

/// What an operation does to the bytes of one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Writes all of them.
    Overwrite,
    /// Writes some of them, or all without promising that. Others keep their value.
    Patch,
    /// Reads and writes.
    Update,
}

impl Access {
    /// What a view does.
    pub(crate) fn of_view(writable: bool) -> Self {
        if writable { Self::Patch } else { Self::Read }
    }

    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether the bytes must have been written before.
    pub(crate) fn needs_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Update)
    }

    /// Whether what failed before fails this too.
    pub(crate) fn needs_whole(self) -> bool {
        self != Self::Overwrite
    }
}

/// Who is at a storage, as far as it was submitted.
#[derive(Default)]
pub(crate) struct Order {
    /// Oldest first. The last one is what readers come after.
    writers: VecDeque<Writer>,
    /// Since the last write.
    readers: Vec<Position>,
    /// The number of readers at which the list is looked through.
    crowded: usize,
    written: bool,
    views: u32,
    writable_views: u32,
}

struct Writer {
    /// The last function that was submitted before.
    behind: u64,
    position: Position,
}

/// What is dropped once no lock is held: the last user of a strand drops that.
type Garbage = SmallVec<[Position; 4]>;

/// Positions that an operation waits for.
pub type Positions = SmallVec<[Position; 4]>;

/// Functions submitted so far, of the kind that may look at storages that are none of its arguments.
static FUNCTIONS: Apart<AtomicU64> = Apart(AtomicU64::new(0));

/// The number of a function that is submitted now, which may look at buffers that are none of its arguments.
#[must_use]
pub fn number_function() -> u64 {
    FUNCTIONS.0.fetch_add(1, Ordering::AcqRel) + 1
}

fn functions() -> u64 {
    FUNCTIONS.0.load(Ordering::Acquire)
}

impl Order {
    /// Readers that are kept without a look.
    const FEW: usize = 8;

    pub(crate) fn new(nbytes: usize) -> Self {
        Self {
            crowded: Self::FEW,
            written: nbytes == 0,
            ..Self::default()
        }
    }

    /// The bytes are there without an operation.
    pub(crate) fn note_written(&mut self) {
        self.written = true;
    }

    fn check(&self, access: Access) -> Result<(), Error> {
        if self.writable_views > 0 || (access.writes() && self.views > 0) {
            return Err(viewed(access));
        }
        if access.needs_bytes() && !self.written {
            return Err(never_written());
        }
        Ok(())
    }

    /// What an operation of `strand` must come after. With no strand: what a thread must.
    fn ahead(&self, access: Access, strand: Option<&Arc<Strand>>, found: &mut Positions) {
        let last = self.writers.back().map(|writer| &writer.position);
        let readers = self.readers.iter().filter(|_| access.writes());
        let own = |position: &Position| {
            strand.is_some_and(|strand| Arc::ptr_eq(strand, position.strand()))
        };
        let ahead = last.into_iter().chain(readers);
        found.extend(
            ahead
                .filter(|position| !own(position) && !position.is_reached())
                .cloned(),
        );
    }

    fn record(&mut self, access: Access, strand: &Arc<Strand>, n: u64, garbage: &mut Garbage) {
        if access.writes() {
            garbage.extend(self.readers.drain(..));
            self.crowded = Self::FEW;
            self.write(strand, n, garbage);
            self.written = true;
        } else {
            self.read(strand, n, garbage);
        }
    }

    fn write(&mut self, strand: &Arc<Strand>, n: u64, garbage: &mut Garbage) {
        let behind = functions();
        while let Some(first) = self
            .writers
            .pop_front_if(|first| first.position.is_reached())
        {
            garbage.push(first.position);
        }
        match self.writers.back_mut() {
            Some(last) if last.behind == behind => {
                if Arc::ptr_eq(last.position.strand(), strand) {
                    last.position.move_to(n);
                } else {
                    let position = Position::new(strand.clone(), n);
                    garbage.push(std::mem::replace(&mut last.position, position));
                }
            }
            _ => self.writers.push_back(Writer {
                behind,
                position: Position::new(strand.clone(), n),
            }),
        }
    }

    fn read(&mut self, strand: &Arc<Strand>, n: u64, garbage: &mut Garbage) {
        match self.readers.last_mut() {
            Some(last) if Arc::ptr_eq(last.strand(), strand) => last.move_to(n),
            _ => {
                if self.readers.len() >= self.crowded {
                    self.forget_readers(garbage);
                }
                self.readers.push(Position::new(strand.clone(), n));
            }
        }
    }

    /// Forgets the reads that nobody needs to wait for.
    fn forget_readers(&mut self, garbage: &mut Garbage) {
        let readers = &mut self.readers;
        readers.sort_unstable_by_key(|reader| (reader.strand().id(), Reverse(reader.n())));
        let mut last = None;
        let covered = |reader: &mut Position| {
            let same = last.replace(reader.strand().id()) == Some(reader.strand().id());
            same || reader.is_reached()
        };
        garbage.extend(readers.extract_if(.., covered));
        self.crowded = Self::FEW.max(2 * readers.len());
    }

    /// The last write before a function was submitted, if it is not reached.
    fn last_before(&self, function: u64) -> Option<Position> {
        let before = self
            .writers
            .partition_point(|writer| writer.behind < function);
        let last = self.writers.get(before.checked_sub(1)?)?;
        (!last.position.is_reached()).then(|| last.position.clone())
    }

    /// The last write.
    pub(crate) fn last_write(&self) -> Option<Position> {
        self.writers.back().map(|writer| writer.position.clone())
    }

    pub(crate) fn end_view(&mut self, writable: bool) {
        self.views -= 1;
        self.writable_views -= u32::from(writable);
    }
}

fn viewed(access: Access) -> Error {
    Error::invalid_argument(if access.writes() {
        "this buffer is being viewed, so nothing may write to it: let go of its views (delete the \
         memoryview or array over it, or release it) first"
    } else {
        "this buffer is being viewed for writing, so nothing else may use it: let go of that view \
         first"
    })
}

/// The orders of all that an operation touches, from the checks to the note of its position.
pub(crate) struct Submission<'a> {
    orders: SmallVec<[(Access, MutexGuard<'a, Order>); 4]>,
}

impl<'a> Submission<'a> {
    /// Begins to submit an operation on `device`.
    ///
    /// # Errors
    /// If a claim may not be.
    pub(crate) fn begin(device: Device, claims: &'a [Claim]) -> Result<Self, Error> {
        let mut sorted: SmallVec<[&Claim; 4]> = claims.iter().collect();
        sorted.sort_unstable_by_key(|claim| claim.storage.id());
        for claim in &sorted {
            claim.storage.admit()?;
            admit_device(device, &claim.storage)?;
        }
        for pair in sorted.windows(2) {
            let twice = pair[0].storage.id() == pair[1].storage.id();
            if twice && (pair[0].access.writes() || pair[1].access.writes()) {
                return Err(Error::invalid_argument(
                    "one operation is given the same buffer twice, and writes to it: pass it once, \
                     for update",
                ));
            }
        }
        sorted.dedup_by_key(|claim| claim.storage.id());
        let lock = |claim: &&'a Claim| (claim.access, claim.storage.order.lock());
        let orders: SmallVec<[_; 4]> = sorted.iter().map(lock).collect();
        for (access, order) in &orders {
            order.check(*access)?;
        }
        Ok(Self { orders })
    }

    /// What an operation of `strand` must come after.
    pub(crate) fn ahead(&self, strand: &Arc<Strand>) -> Positions {
        let mut found = Positions::new();
        for (access, order) in &self.orders {
            order.ahead(*access, Some(strand), &mut found);
        }
        found
    }

    /// Notes that the operation is number `n` of `strand`, and lets go of the locks.
    pub(crate) fn record(mut self, strand: &Arc<Strand>, n: u64) {
        let mut garbage = Garbage::new();
        for (access, order) in &mut self.orders {
            order.record(*access, strand, n, &mut garbage);
        }
        drop(self);
        drop(garbage);
    }
}

/// Submits an operation to `stream` by `push`, in the order that its claims ask for. `number` tells which
/// operation of the stream it is.
pub(crate) fn submit<P>(
    stream: &Stream,
    claims: &[Claim],
    push: impl FnOnce(Positions) -> Result<(P, Start), Error>,
    number: impl FnOnce(&P) -> u64,
) -> Result<(P, Start), Error> {
    if claims.is_empty() {
        return push(Positions::new());
    }
    let strand = stream.strand();
    let submission = Submission::begin(stream.device(), claims)?;
    let (pushed, start) = push(submission.ahead(strand))?;
    submission.record(strand, number(&pushed));
    Ok((pushed, start))
}

fn admit_device(device: Device, storage: &Storage) -> Result<(), Error> {
    if storage.device() == device {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "the buffer is on {}, but the stream on {device}: copy it there first",
        storage.device()
    )))
}

/// Begins a view: nothing that conflicts is submitted from here on. What it must come after: nothing, if
/// it is `direct`.
pub(crate) fn begin_view(
    storage: &Storage,
    writable: bool,
    direct: bool,
) -> Result<Positions, Error> {
    let access = Access::of_view(writable);
    let mut found = Positions::new();
    let mut order = storage.order.lock();
    if !direct {
        order.check(access)?;
        order.ahead(access, None, &mut found);
        found.retain(|position| !is_around(position));
    }
    order.written |= writable;
    order.views += 1;
    order.writable_views += u32::from(writable);
    Ok(found)
}

/// Whether it is the end of the default stream's operation that the calling thread is inside of. What
/// was submitted in there has run; what the operation itself is at, the storage tells.
fn is_around(position: &Position) -> bool {
    let strand = position.strand();
    strand.is_inline() && strand.inside() == Some(position.n())
}

/// The last write that was submitted before a function, if it is not reached.
pub(crate) fn last_write_before(
    storage: &Storage,
    function: u64,
) -> Result<Option<Position>, Error> {
    storage.admit()?;
    let order = storage.order.lock();
    if !order.written {
        return Err(never_written());
    }
    Ok(order.last_before(function))
}
