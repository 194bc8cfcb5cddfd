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
//! so a storage that ten thousand streams read stays small. Where there are functions that may look at
//! buffers which they were not given (see [`aside`](crate::aside)), every use is kept until it is
//! reached: such a function waits for those that were submitted before it, and for none behind it.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use clika_executor::sync::MutexGuard;
use clika_executor::{Position, Start, Strand, is_inside};
use smallvec::SmallVec;

use crate::aside::functions;
use crate::device::Device;
use crate::error::Error;
use crate::storage::{Claim, Storage, never_written, still_in_use};
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
    /// Oldest first: each comes after the one before it. The last one is what readers come after.
    writers: VecDeque<Use>,
    /// Since the last write.
    readers: Readers,
    /// Before the last write. Only a function that was submitted in between has to come after them and
    /// not after that write.
    overtaken: Readers,
    written: bool,
    views: u32,
    writable_views: u32,
}

/// One operation at a storage.
struct Use {
    /// How many functions had been submitted before.
    behind: u64,
    position: Position,
}

impl Use {
    /// Whether the calling thread is inside of it.
    fn is_mine(&self) -> bool {
        is_inside(self.position.strand().id(), self.position.n())
    }

    fn is_of(&self, strand: &Arc<Strand>) -> bool {
        Arc::ptr_eq(self.position.strand(), strand)
    }
}

/// Reads that are not known to be done, in no order.
#[derive(Default)]
struct Readers {
    uses: Vec<Use>,
    /// The number at which the list is looked through.
    crowded: usize,
}

/// What is dropped once no lock is held: the last user of a strand drops that.
type Garbage = SmallVec<[Position; 4]>;

/// Positions that an operation waits for.
pub type Positions = SmallVec<[Position; 4]>;

impl Readers {
    /// As many are kept without a look.
    const FEW: usize = 8;

    fn add(&mut self, reader: Use, garbage: &mut Garbage) {
        if self.uses.len() >= self.crowded.max(Self::FEW) {
            self.forget(garbage);
        }
        self.uses.push(reader);
    }

    /// Forgets those that nobody needs to wait for.
    fn forget(&mut self, garbage: &mut Garbage) {
        let key = |reader: &Use| (reader.position.strand().id(), Reverse(reader.position.n()));
        self.uses.sort_unstable_by_key(key);
        let mut last = None;
        let needless = |reader: &mut Use| {
            // A later read of the same strand covers it, and no function looks in between.
            let covered = last == Some((reader.position.strand().id(), 0));
            last = Some((reader.position.strand().id(), reader.behind));
            covered || reader.position.is_reached()
        };
        let forgotten = self.uses.extract_if(.., needless);
        garbage.extend(forgotten.map(|reader| reader.position));
        self.crowded = 2 * self.uses.len();
    }

    fn take(&mut self) -> Vec<Use> {
        self.crowded = 0;
        std::mem::take(&mut self.uses)
    }
}

impl Order {
    pub(crate) fn new(nbytes: usize) -> Self {
        Self {
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
        let last = self.writers.back();
        let readers = self.readers.uses.iter().filter(|_| access.writes());
        let own = |other: &Use| strand.is_some_and(|strand| other.is_of(strand));
        let ahead = last.into_iter().chain(readers);
        found.extend(
            ahead
                .filter(|other| !own(other) && !other.position.is_reached())
                .map(|other| other.position.clone()),
        );
    }

    fn record(&mut self, access: Access, strand: &Arc<Strand>, n: u64, garbage: &mut Garbage) {
        let behind = functions();
        if access.writes() {
            self.overtake(behind, garbage);
            self.write(behind, strand, n, garbage);
            self.written = true;
        } else {
            self.read(behind, strand, n, garbage);
        }
    }

    /// A write comes after all reads, so nobody else has to; but for a function in between.
    fn overtake(&mut self, behind: u64, garbage: &mut Garbage) {
        if behind == 0 {
            garbage.extend(self.readers.uses.drain(..).map(|reader| reader.position));
            return;
        }
        for reader in self.readers.take() {
            if reader.behind < behind && !reader.position.is_reached() {
                self.overtaken.add(reader, garbage);
            } else {
                garbage.push(reader.position);
            }
        }
    }

    fn write(&mut self, behind: u64, strand: &Arc<Strand>, n: u64, garbage: &mut Garbage) {
        while let Some(first) = self
            .writers
            .pop_front_if(|first| first.position.is_reached())
        {
            garbage.push(first.position);
        }
        match self.writers.back_mut() {
            Some(last) if behind == 0 && last.is_of(strand) => last.position.move_to(n),
            Some(last) if behind == 0 => {
                let position = Position::new(strand.clone(), n);
                garbage.push(std::mem::replace(&mut last.position, position));
            }
            _ => self.writers.push_back(Use {
                behind,
                position: Position::new(strand.clone(), n),
            }),
        }
    }

    fn read(&mut self, behind: u64, strand: &Arc<Strand>, n: u64, garbage: &mut Garbage) {
        match self.readers.uses.last_mut() {
            Some(last) if behind == 0 && last.is_of(strand) => last.position.move_to(n),
            _ => {
                let position = Position::new(strand.clone(), n);
                self.readers.add(Use { behind, position }, garbage);
            }
        }
    }

    /// What an access inside a function comes after: what was submitted before the function, and
    /// the function itself, which cannot be waited for.
    ///
    /// # Errors
    /// If it may not be.
    pub(crate) fn before(&self, function: u64, access: Access) -> Result<Positions, Error> {
        self.check(access)?;
        let before = |other: &&Use| other.behind < function || other.is_mine();
        let last = self.writers.iter().rev().find(before);
        let readers = self.readers(access).filter(before);
        Ok(pending(last.into_iter().chain(readers)).collect())
    }

    /// Whether something conflicts with an access that was submitted after a function.
    fn has_behind(&self, function: u64, access: Access) -> bool {
        let behind = |other: &&Use| other.behind >= function && !other.is_mine();
        let last = self.writers.back().filter(behind);
        let readers = self.readers(access).filter(behind);
        pending(last.into_iter().chain(readers)).next().is_some()
    }

    /// What may be at the bytes right now and conflicts with an access: what is next on its stream.
    ///
    /// # Errors
    /// If the access may not be.
    pub(crate) fn under_way(&self, access: Access) -> Result<Positions, Error> {
        self.check(access)?;
        let conflicting = || self.writers.iter().chain(self.readers(access));
        if conflicting().any(Use::is_mine) {
            return Err(still_in_use());
        }
        let all = || pending(conflicting());
        let next: Positions = all().filter(Position::is_next).collect();
        if next.is_empty() {
            // What was noted before there was any function may stand for several operations.
            return Ok(all().take(1).collect());
        }
        Ok(next)
    }

    /// The readers that conflict with an access.
    fn readers(&self, access: Access) -> impl Iterator<Item = &Use> {
        let all = self.overtaken.uses.iter().chain(&self.readers.uses);
        all.filter(move |_| access.writes())
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

/// The positions of these that the calling thread would have to wait for.
fn pending<'a>(uses: impl Iterator<Item = &'a Use>) -> impl Iterator<Item = Position> {
    uses.map(|other| &other.position)
        .filter(|position| !position.is_reached() && !is_around(position))
        .cloned()
}

/// Who asks for a view.
#[derive(Clone, Copy)]
pub(crate) enum Viewer {
    /// A thread that is inside no function.
    Host,
    /// A function that has the buffer as an argument.
    Argument,
    /// The function of this number, which does not.
    Aside(u64),
}

/// A view that has begun, as far as whoever submits is concerned: nothing that conflicts is submitted
/// from here on.
pub(crate) struct Begun {
    /// What it must come after.
    pub(crate) ahead: Positions,
    /// It can only show a copy.
    pub(crate) copies: bool,
}

/// Begins a view.
pub(crate) fn begin_view(
    storage: &Storage,
    writable: bool,
    viewer: Viewer,
) -> Result<Begun, Error> {
    let access = Access::of_view(writable);
    let mut begun = Begun {
        ahead: Positions::new(),
        copies: false,
    };
    let mut order = storage.order.lock();
    match viewer {
        Viewer::Argument => {}
        Viewer::Host => {
            order.check(access)?;
            order.ahead(access, None, &mut begun.ahead);
            begun.ahead.retain(|position| !is_around(position));
        }
        Viewer::Aside(function) => {
            begun.ahead = order.before(function, access)?;
            begun.copies = order.has_behind(function, access);
            if begun.copies && writable {
                return Err(used_behind());
            }
        }
    }
    order.written |= writable;
    order.views += 1;
    order.writable_views += u32::from(writable);
    Ok(begun)
}

fn used_behind() -> Error {
    Error::invalid_argument(
        "work that was submitted after this function uses the buffer, so it cannot be viewed for \
         writing here: pass the buffer to the function as an argument, or copy to it",
    )
}

/// Whether it is the end of the default stream's operation that the calling thread is inside of. What
/// was submitted in there has run; what the operation itself is at, the storage tells.
fn is_around(position: &Position) -> bool {
    let strand = position.strand();
    strand.is_inline() && strand.inside() == Some(position.n())
}
