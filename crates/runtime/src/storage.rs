//! What lies under a buffer: its memory, and the state of its bytes.
//!
//! # Protocol
//! A storage has two sides, each under its own lock. *Order* belongs to whoever submits; it is told
//! in [`hazard`](crate::hazard). *Content* belongs to whoever runs, and changes in the order in which
//! conflicting operations run:
//! * the memory, which the first writer allocates and which goes when the last user lets go;
//! * the failure, if the bytes are not what they should be, until they are wholly overwritten;
//! * who is at it right now: any number of readers, or one writer; and the views that outlive that.
//!
//! The order makes sure that an operation finds nobody in its way. It looks nevertheless: a view that
//! a function made and kept is found here, and so would be any fault of the order itself, before two
//! threads touch the same bytes.
//!
//! Lock order: orders by the storages' ids, then strands; content and pool are innermost. Nothing of
//! a user's is dropped under these locks.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clika_executor::sync::Mutex;
use clika_executor::{Failure, Fault, Reason, Site, generation, is_inside};
use smallvec::SmallVec;

use crate::device::Device;
use crate::error::Error;
use crate::hazard::{Access, Order};
use crate::pool::{ALIGNMENT, Block, Pool};

#[repr(C)]
pub(crate) struct Storage {
    // Written by who runs.
    content: Mutex<Content>,
    // Never written. It keeps a cache line's length between the two others, which are written for
    // every operation, by two threads.
    id: u64,
    device: Device,
    nbytes: usize,
    generation: u64,
    pool: Arc<Pool>,
    apart: [u64; 3],
    // Written by who submits.
    pub(crate) order: Mutex<Order>,
}

#[derive(Default)]
struct Content {
    block: Option<Block>,
    failure: Option<Arc<Failure>>,
    readers: u32,
    writer: bool,
    /// The operation that has it as an argument, by its strand and number.
    holder: Option<(u64, u64)>,
    /// Functions inside that operation that have it as an argument too.
    nested: u32,
    views: u32,
    writable_views: u32,
}

impl Storage {
    pub(crate) fn new(device: Device, nbytes: usize, pool: Arc<Pool>) -> Arc<Self> {
        static STORAGES: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            id: STORAGES.fetch_add(1, Ordering::Relaxed),
            device,
            nbytes,
            generation: generation(),
            pool,
            apart: [0; 3],
            order: Mutex::new(Order::new(nbytes)),
            content: Mutex::new(Content::default()),
        })
    }

    /// A number that no other storage of the process has: the order of locking.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Whether this process inherited it by a fork and must not touch it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != generation()
    }

    /// Refuses a storage that was inherited by a fork. Called before anything of it is looked at.
    pub(crate) fn admit(&self) -> Result<(), Error> {
        if self.is_inherited() {
            return Err(Error::device(
                "this buffer belongs to the process that this one was forked from: make one here",
                None,
            ));
        }
        Ok(())
    }

    /// Checks that it holds a whole number of elements of `size` bytes.
    pub(crate) fn check_elements(&self, size: usize) -> Result<(), Error> {
        let nbytes = self.nbytes;
        if nbytes.is_multiple_of(size) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "a buffer of {nbytes} bytes does not hold a whole number of elements of {size} bytes"
        )))
    }

    /// Whether the calling thread runs the operation that has it as an argument.
    pub(crate) fn is_held_here(&self) -> bool {
        !self.is_inherited() && self.content.lock().is_held_here()
    }

    /// Begins an operation at the bytes: where they are.
    fn begin(&self, access: Access, holder: Option<(u64, u64)>) -> Result<NonNull<u8>, Missing> {
        let mut content = self.content.lock();
        if holder.is_some() && content.holder == holder {
            let start = self.locate(&mut content, access)?;
            content.nested += 1;
            return Ok(start);
        }
        content.look(access)?;
        let start = self.locate(&mut content, access)?;
        content.holder = holder;
        if access.writes() {
            content.writer = true;
        } else {
            content.readers += 1;
        }
        Ok(start)
    }

    /// The memory, allocated if this is the first writer.
    fn locate(&self, content: &mut Content, access: Access) -> Result<NonNull<u8>, Missing> {
        if let Some(block) = &content.block {
            return Ok(block.start());
        }
        if self.nbytes == 0 {
            return Ok(nowhere());
        }
        if access.needs_bytes() {
            // The operation that should have written them was cancelled.
            return Err(Missing::Error(never_written()));
        }
        let block = self.pool.allocate(self.nbytes).map_err(Missing::Error)?;
        Ok(content.block.insert(block).start())
    }

    /// Ends an operation. One that has overwritten all of the bytes mends what failed before.
    fn end(&self, access: Access, overwritten: bool) {
        let mut content = self.content.lock();
        if content.nested > 0 {
            content.nested -= 1;
            return;
        }
        content.holder = None;
        if access.writes() {
            content.writer = false;
        } else {
            content.readers -= 1;
        }
        let mended = overwritten.then(|| content.failure.take());
        drop(content);
        drop(mended);
    }

    /// The bytes are not what they should be, if there are any.
    fn fail(&self, failure: &Arc<Failure>) {
        if self.nbytes == 0 {
            return;
        }
        let before = self.content.lock().failure.replace(failure.clone());
        drop(before);
    }

    /// Calls `f` with the failure of a storage that only the caller's handle reaches, if nobody else
    /// holds that failure. Whoever owns the handle then owns the failure, as a garbage collector counts.
    pub(crate) fn with_sole_failure<R>(
        self: &Arc<Self>,
        f: impl FnOnce(&Failure) -> R,
    ) -> Option<R> {
        if self.is_inherited() || Arc::strong_count(self) > 1 {
            return None;
        }
        let content = self.content.lock();
        let failure = content.failure.as_ref();
        failure
            .filter(|failure| Arc::strong_count(failure) == 1)
            .map(|failure| f(failure))
    }

    /// Lets go of the failure of a storage that nobody can reach any more.
    pub(crate) fn forget_failure(&self) {
        let failure = self.content.lock().failure.take();
        drop(failure);
    }

    /// Fills the memory of a storage that nobody else knows yet.
    pub(crate) fn fill_fresh(&self, write: impl FnOnce(NonNull<u8>)) -> Result<(), Error> {
        if self.nbytes > 0 {
            let block = self.pool.allocate(self.nbytes)?;
            write(block.start());
            self.content.lock().block = Some(block);
        }
        self.order.lock().note_written();
        Ok(())
    }

    /// Begins a view, which whoever submits knows of: where the bytes are. A `direct` one is made by the
    /// function that has the storage as an argument, and is at the bytes beside it.
    pub(crate) fn begin_view(&self, writable: bool, direct: bool) -> Result<NonNull<u8>, Missing> {
        let mut content = self.content.lock();
        let access = Access::of_view(writable);
        if !(direct && content.is_held_here()) {
            content.look(access)?;
        } else if let Some(failure) = &content.failure {
            return Err(Missing::Failed(failure.clone()));
        }
        let start = self.locate(&mut content, access)?;
        content.views += 1;
        content.writable_views += u32::from(writable);
        Ok(start)
    }

    pub(crate) fn end_view(&self, writable: bool) {
        let mut content = self.content.lock();
        content.views -= 1;
        content.writable_views -= u32::from(writable);
    }

    /// Calls `f` with where the bytes are, for a function that is at them aside of the order: `None` if
    /// somebody is in the way, here or where `f` looks. For the function that has them as an argument
    /// nobody is.
    pub(crate) fn aside<R>(
        &self,
        access: Access,
        f: impl FnOnce(NonNull<u8>) -> Result<Option<R>, Missing>,
    ) -> Result<Option<R>, Missing> {
        let mut content = self.content.lock();
        if content.is_held_here() {
            return f(self.locate(&mut content, Access::Patch)?);
        }
        if content.is_in_the_way_of(access) {
            return Ok(None);
        }
        content.look(access)?;
        let done = f(self.locate(&mut content, access)?)?;
        let overwritten = done.is_some() && access == Access::Overwrite;
        let mended = overwritten.then(|| content.failure.take());
        drop(content);
        drop(mended);
        Ok(done)
    }
}

impl Content {
    /// Whether the calling thread runs the operation that has it as an argument.
    fn is_held_here(&self) -> bool {
        self.holder.is_some_and(|(strand, n)| is_inside(strand, n))
    }

    fn is_in_the_way_of(&self, access: Access) -> bool {
        let others_write = self.writer || self.writable_views > 0;
        others_write || (access.writes() && self.readers + self.views > 0)
    }

    /// Whether an operation can be at the bytes.
    fn look(&self, access: Access) -> Result<(), Missing> {
        if self.is_in_the_way_of(access) {
            return Err(Missing::Error(still_in_use()));
        }
        match &self.failure {
            Some(failure) if access.needs_whole() => Err(Missing::Failed(failure.clone())),
            _ => Ok(()),
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The parent's threads may have been at what it leads to: that stays as it is.
            let _ = ManuallyDrop::new(std::mem::take(self.order.get_mut()));
            let _ = ManuallyDrop::new(std::mem::take(self.content.get_mut()));
        }
    }
}

/// Why nobody can be at the bytes.
pub enum Missing {
    /// They are not what they should be: what should have written them failed.
    Failed(Arc<Failure>),
    /// They were never written, others are at them, or there is no memory for them.
    Error(Error),
}

/// Where the bytes of an empty buffer are.
fn nowhere() -> NonNull<u8> {
    #[repr(align(64))]
    struct Aligned;
    const { assert!(align_of::<Aligned>() == ALIGNMENT) };
    NonNull::<Aligned>::dangling().cast()
}

pub(crate) fn never_written() -> Error {
    Error::invalid_argument(
        "nothing was written to this buffer, so there is nothing to read: fill it, copy to it, or \
         submit what writes it first",
    )
}

pub(crate) fn still_in_use() -> Error {
    Error::invalid_argument(
        "the buffer is still in use: by a view that a function made of its argument and kept, or by \
         the work that this is part of. Let go of the view before the function returns, or copy what \
         it shows",
    )
}

/// What an operation does to one storage.
#[derive(Clone)]
pub struct Claim {
    pub(crate) storage: Arc<Storage>,
    pub(crate) access: Access,
}

/// The sizes of all storages of these claims, each of which has one.
pub(crate) fn bytes(claims: &[Claim]) -> u64 {
    let sizes = claims.iter().map(|claim| claim.storage.nbytes() as u64);
    sizes.sum()
}

/// An operation at the bytes of its claims, from its begin to its end.
pub struct Held<'a> {
    claims: &'a [Claim],
    /// Where the bytes of those are that it is at.
    starts: SmallVec<[NonNull<u8>; 4]>,
}

// SAFETY: it gives out addresses and no access. Who makes slices of them sees to it that no two
// threads write, or read and write, the same bytes.
#[allow(unsafe_code, reason = "see above")]
unsafe impl Sync for Held<'_> {}

impl<'a> Held<'a> {
    /// Begins an operation at all of its claims, or at none. `holder`: they are the arguments of this
    /// operation of a strand.
    pub(crate) fn begin(
        claims: &'a [Claim],
        site: impl Into<Site>,
        holder: Option<(u64, u64)>,
    ) -> Result<Self, Fault> {
        let mut held = Self {
            claims,
            starts: SmallVec::new(),
        };
        for claim in claims {
            match claim.storage.begin(claim.access, holder) {
                Ok(start) => held.starts.push(start),
                Err(missing) => {
                    drop(held);
                    return Err(failing(claims, missing.into_fault(site)));
                }
            }
        }
        Ok(held)
    }

    /// Goes on without this value: whoever owns the claims ends it.
    pub(crate) fn leave_to_owner(mut self) {
        self.starts = SmallVec::new();
    }

    /// An operation that was left to the owner of its claims, to be ended.
    pub(crate) fn taken_over(claims: &'a [Claim]) -> Self {
        let starts = claims.iter().map(|_| nowhere()).collect();
        Self { claims, starts }
    }

    /// Where the bytes of a claim are.
    pub(crate) fn start(&self, claim: usize) -> NonNull<u8> {
        self.starts[claim]
    }

    /// Where the bytes of all the claims are.
    pub(crate) fn starts(&self) -> &[NonNull<u8>] {
        &self.starts
    }

    /// Ends the operation: what it should have written has failed if it did, and is whole if not.
    pub(crate) fn end(mut self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        self.leave(outcome.is_ok());
        outcome.map_err(|fault| failing(self.claims, fault))
    }

    fn leave(&mut self, done: bool) {
        let starts = std::mem::take(&mut self.starts);
        for claim in &self.claims[..starts.len()] {
            let overwritten = done && claim.access == Access::Overwrite;
            claim.storage.end(claim.access, overwritten);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.leave(false);
    }
}

impl Missing {
    fn into_fault(self, site: impl Into<Site>) -> Fault {
        match self {
            Self::Failed(failure) => Fault::passed(failure),
            Self::Error(error) => Fault::new(Reason::Returned(Arc::new(Own(error))), site),
        }
    }
}

/// A fault whose failure becomes that of all that these claims should have written.
pub(crate) fn failing(claims: &[Claim], fault: Fault) -> Fault {
    let written: Vec<Arc<Storage>> = claims
        .iter()
        .filter(|claim| claim.access.writes())
        .map(|claim| claim.storage.clone())
        .collect();
    if written.is_empty() {
        return fault;
    }
    fault.left_to(move |failure| written.iter().for_each(|storage| storage.fail(failure)))
}

/// As [`failing`], of claims that all write; each storage gets the failure as a twin of its own.
pub(crate) fn failing_apart(claims: Vec<Claim>, fault: Fault, reasons: Vec<Reason>) -> Fault {
    fault.left_to(move |failure| {
        for (claim, reason) in claims.iter().zip(reasons) {
            claim.storage.fail(&failure.twin(reason));
        }
    })
}

/// The operation was skipped because of `why`, so what it should have written has failed.
pub(crate) fn skip(claims: &[Claim], why: &Arc<Failure>) {
    for claim in claims.iter().filter(|claim| claim.access.writes()) {
        claim.storage.fail(why);
    }
}

/// An error of the runtime's own, as the reason of a failure.
#[derive(Debug)]
pub(crate) struct Own(pub(crate) Error);

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Own {}
