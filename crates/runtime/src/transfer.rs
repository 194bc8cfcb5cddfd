//! Copies between the host and buffers, copies between buffers, and fills.
#![allow(
    unsafe_code,
    reason = "copies bytes of the memory behind buffers; each block states its reason"
)]

use std::ops::Range;
use std::panic::Location;
use std::ptr::{NonNull, copy_nonoverlapping};
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;
use clika_executor::sync::Mutex;
use clika_executor::trace::Description;
use clika_executor::{Failure, Fault, Kind, Point, Position, Reason, Site, Visitor};
use smallvec::SmallVec;

use crate::aside::{self, Aside};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::future::{Future, Value};
use crate::hazard::{Access, Positions};
use crate::inline;
use crate::pool::Block;
use crate::runtime::runtime;
use crate::storage::{self, Claim, Held, Missing, Own, Storage};
use crate::stream::Stream;
use crate::task::{self, Anywhere, OnWorker, Place, Work};

/// Copies and fills of at most this many bytes are brief: they run on whichever thread comes first.
const BRIEF: usize = 4096;

/// Elements that a buffer can be filled with: 1, 2, 4 or 8 bytes.
pub trait Pattern: Pod + Send + Sync {}

macro_rules! patterns {
    ($($of:ty),+) => { $(impl Pattern for $of {})+ };
}

patterns!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl Stream {
    /// Fills a range of a buffer, in bytes, with copies of one value.
    ///
    /// # Errors
    /// As for [`run`](Self::run); invalid argument for a range that is not within the buffer or holds
    /// no whole number of values.
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Buffer, Device, Stream};
    ///
    /// let stream = Stream::create(Device::cpu())?;
    /// let buffer = Buffer::new(Device::cpu(), 8)?;
    /// stream.fill(&buffer, 0..8, 0x0102_u16)?;
    /// stream.fill(&buffer, 2..3, 0_u8)?;
    /// assert_eq!(buffer.to_vec::<u8>()?, [2, 1, 0, 1, 2, 1, 2, 1]);
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    #[track_caller]
    pub fn fill<T: Pattern>(
        &self,
        buffer: &Buffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        self.fill_bytes(buffer, range, bytemuck::bytes_of(&value))
    }

    /// As [`fill`](Self::fill), with a pattern of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill); invalid argument for a pattern of another length.
    #[track_caller]
    pub fn fill_bytes(
        &self,
        buffer: &Buffer,
        range: Range<usize>,
        pattern: &[u8],
    ) -> Result<(), Error> {
        Transfer::fill(buffer, range, pattern)?.submit(self, Location::caller())
    }

    /// Copies bytes of the host's into a buffer, from `offset` on. They have been read when this
    /// returns.
    ///
    /// # Errors
    /// As for [`run`](Self::run); invalid argument for bytes that do not fit; out of memory if there is
    /// none to keep them in until the copy runs.
    #[track_caller]
    pub fn copy_in(&self, source: &[u8], buffer: &Buffer, offset: usize) -> Result<(), Error> {
        Transfer::copy_in(source, buffer, offset)?.submit(self, Location::caller())
    }

    /// Copies `length` bytes from one buffer to another, or to another place of the same.
    ///
    /// # Errors
    /// As for [`run`](Self::run); invalid argument for ranges that are not within their buffers, or
    /// that overlap.
    #[track_caller]
    pub fn copy(
        &self,
        source: &Buffer,
        source_offset: usize,
        target: &Buffer,
        target_offset: usize,
        length: usize,
    ) -> Result<(), Error> {
        Transfer::copy(source, source_offset, target, target_offset, length)?
            .submit(self, Location::caller())
    }

    /// Copies a range of a buffer, in bytes, to the host.
    ///
    /// # Errors
    /// As for [`run`](Self::run); invalid argument for a range that is not within the buffer or holds
    /// no whole number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Buffer, Device, Stream};
    ///
    /// let stream = Stream::create(Device::cpu())?;
    /// let buffer = Buffer::from_slice(Device::cpu(), &[1_u16, 2, 3])?;
    /// let tail = stream.copy_out::<u16>(&buffer, 2..6)?;
    /// assert_eq!(tail.wait()?, [2, 3]);
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    #[track_caller]
    pub fn copy_out<T: Pod + Send>(
        &self,
        buffer: &Buffer,
        range: Range<usize>,
    ) -> Result<Future<Vec<T>>, Error> {
        let site = Location::caller();
        let range = within(buffer.nbytes(), range)?;
        let size = size_of::<T>().max(1);
        if !range.len().is_multiple_of(size) {
            return Err(Error::invalid_argument(format!(
                "{} bytes hold no whole number of elements of {size} bytes",
                range.len()
            )));
        }
        let value = Value::waiting();
        let (place, length) = (value.clone(), range.len());
        let work = move |held: &Held<'_>| {
            let start = held.starts().first().map(|start| {
                // SAFETY: the range lies within the buffer.
                unsafe { start.byte_add(range.start) }
            });
            // SAFETY: the operation is at the buffer and reads it.
            let copied = unsafe { copied(start, range.len()) };
            place.fill(copied.map_err(|error| Reason::Returned(Arc::new(Own(error))))?);
            Ok(())
        };
        let claim = (length > 0).then(|| buffer.claim(Access::Read));
        let submit = self.submit_at(
            Option::into_iter(claim).collect::<SmallVec<[_; 1]>>(),
            site,
            task::COPY,
        );
        if length <= BRIEF {
            submit.call(Anywhere, value, work)
        } else {
            submit.call(OnWorker, value, work)
        }
    }
}

impl Buffer {
    /// All that it holds, for function number `function`, which is running.
    pub(crate) fn to_vec_inside<T: Pod>(&self, function: u64) -> Result<Vec<T>, Error> {
        let nbytes = self.nbytes();
        // SAFETY: a function that is aside reads the bytes while nobody writes.
        let copy = |start| unsafe { copied(Some(start), nbytes) };
        aside::reach(self.claim(Access::Read), function, copy)
            .unwrap_or_else(|missing| Err(missing.into_error()))
    }
}

/// A copy or a fill, checked and not yet submitted.
pub struct Transfer {
    claims: SmallVec<[Claim; 2]>,
    length: usize,
    deed: Deed,
}

/// What is done at the claims, in their order.
enum Deed {
    Fill(Repeated, Range<usize>),
    In(Staged, Range<usize>),
    /// From one place to another, of the same buffer or of two.
    Between(Range<usize>, Range<usize>),
    Out(Range<usize>, Arc<Target>),
}

impl Transfer {
    /// Nothing is at the bytes for a length of zero.
    fn new(claims: &[Claim], length: usize, deed: Deed) -> Self {
        let touched = if length == 0 { &[] } else { claims };
        Self {
            claims: touched.iter().cloned().collect(),
            length,
            deed,
        }
    }

    /// Fills a range of a buffer.
    ///
    /// # Errors
    /// As for [`Stream::fill_bytes`].
    pub fn fill(buffer: &Buffer, range: Range<usize>, pattern: &[u8]) -> Result<Self, Error> {
        let range = within(buffer.nbytes(), range)?;
        let pattern = Repeated::new(pattern, range.len())?;
        let claim = written(buffer, &range);
        Ok(Self::new(&[claim], range.len(), Deed::Fill(pattern, range)))
    }

    /// Copies bytes of the host's, which are read by this.
    ///
    /// # Errors
    /// As for [`Stream::copy_in`].
    pub fn copy_in(source: &[u8], buffer: &Buffer, offset: usize) -> Result<Self, Error> {
        let range = within(buffer.nbytes(), offset..offset.saturating_add(source.len()))?;
        let (claim, staged) = (written(buffer, &range), Staged::new(source)?);
        Ok(Self::new(&[claim], range.len(), Deed::In(staged, range)))
    }

    /// Copies from one buffer to another, or within one.
    ///
    /// # Errors
    /// As for [`Stream::copy`].
    pub fn copy(
        source: &Buffer,
        source_offset: usize,
        target: &Buffer,
        target_offset: usize,
        length: usize,
    ) -> Result<Self, Error> {
        let end = |start: usize| start.saturating_add(length);
        let from = within(source.nbytes(), source_offset..end(source_offset))?;
        let to = within(target.nbytes(), target_offset..end(target_offset))?;
        if source != target {
            let claims = [source.claim(Access::Read), written(target, &to)];
            return Ok(Self::new(&claims, length, Deed::Between(from, to)));
        }
        if from.start < to.end && to.start < from.end {
            return Err(Error::invalid_argument(format!(
                "the ranges {from:?} and {to:?} of the same buffer overlap: copy through another \
                 buffer"
            )));
        }
        let claim = source.claim(Access::Update);
        Ok(Self::new(&[claim], length, Deed::Between(from, to)))
    }

    /// Copies a range to memory of the host's. Dropping the second value makes that
    /// memory the caller's own again.
    ///
    /// # Errors
    /// As for [`Stream::copy_out`].
    ///
    /// # Safety
    /// Until then the memory may be written by other threads: as many bytes as the range has.
    pub unsafe fn copy_out(
        buffer: &Buffer,
        range: Range<usize>,
        target: NonNull<u8>,
    ) -> Result<(Self, Wanted), Error> {
        let range = within(buffer.nbytes(), range)?;
        let target = Arc::new(Target(Mutex::new(Some(Address(target)))));
        let claim = buffer.claim(Access::Read);
        let transfer = Self::new(&[claim], range.len(), Deed::Out(range, target.clone()));
        Ok((transfer, Wanted(target)))
    }

    /// Submits it. On the default stream it has run, and its failure is returned, acknowledged.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn submit(self, stream: &Stream, site: impl Place) -> Result<(), Error> {
        let name = self.name();
        let (claims, length, work) = self.into_work();
        let submit = stream.submit_at(claims, site, name);
        if length <= BRIEF {
            submit.run(Anywhere, work)
        } else {
            submit.run(OnWorker, work)
        }
    }

    /// Submits it to a created stream: the point that it ends at.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn push(self, stream: &Stream, site: Site) -> Result<Point, Error> {
        let name = self.name();
        let (claims, length, work) = self.into_work();
        let submit = stream.submit_at(claims, site, name);
        if length <= BRIEF {
            submit.push(Anywhere, work)
        } else {
            submit.push(OnWorker, work)
        }
    }

    /// Takes a place in the order of a default stream.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn enter(&self, stream: &Stream) -> Result<Visitor, Error> {
        inline::enter(stream, &self.claims)
    }

    /// Makes it part of operation `n` of a default stream, which the caller is inside of. What is to be
    /// waited for before this is tried again: it is done when that is nothing.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn enter_within(&self, stream: &Stream, n: u64) -> Result<Positions, Error> {
        inline::order_within(stream, n, &self.claims)
    }

    /// Does it, in the order that it was entered in.
    ///
    /// # Errors
    /// Its fault.
    pub fn perform(self, site: Site) -> Result<(), Fault> {
        let (claims, _, work) = self.into_work();
        task::perform(&claims, site, work)
    }

    /// It is skipped because of `why`.
    pub fn skip(&self, why: &Arc<Failure>) {
        storage::skip(&self.claims, why);
    }

    /// Whether the caller is inside the function that has all its buffers as arguments, and so has direct
    /// access.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        let held = |claim: &Claim| claim.storage.is_held_here();
        !self.claims.is_empty() && self.claims.iter().all(held)
    }

    /// Begins it inside function number `function`, on no stream: what was submitted before the function
    /// comes before it.
    ///
    /// # Errors
    /// As for [`Stream::run`].
    pub fn aside(self, function: u64) -> Result<TransferAside, Error> {
        let asides = self.claims.into_iter();
        let asides = asides.map(|claim| Aside::new(claim, function));
        Ok(TransferAside {
            asides: asides.collect::<Result<_, _>>()?,
            length: self.length,
            deed: self.deed,
        })
    }

    fn name(&self) -> &'static str {
        match self.deed {
            Deed::Fill(..) => task::FILL,
            Deed::In(..) | Deed::Between(..) | Deed::Out(..) => task::COPY,
        }
    }

    /// What is told of it on a default stream, where it was submitted at `site`.
    #[must_use]
    pub fn describe(&self, site: Site) -> Description {
        task::describe(Kind::Visit, self.name(), site, &self.claims)
    }

    fn into_work(self) -> (SmallVec<[Claim; 2]>, usize, impl Work) {
        let (deed, length) = (self.deed, self.length);
        let work = move |held: &Held<'_>| {
            if length > 0 {
                deed.perform(held.starts());
            }
            Ok(())
        };
        (self.claims, length, work)
    }
}

/// A transfer inside a function.
pub struct TransferAside {
    asides: SmallVec<[Aside; 2]>,
    length: usize,
    deed: Deed,
}

impl TransferAside {
    /// What is to be reached before the next attempt.
    pub fn positions(&self) -> impl Iterator<Item = &Position> {
        self.asides.iter().flat_map(Aside::positions)
    }

    /// Does it, unless somebody is in the way, who is to be waited for first: `false`.
    ///
    /// # Errors
    /// Why there are no bytes.
    pub fn attempt(&mut self) -> Result<bool, Missing> {
        let (deed, length) = (&self.deed, self.length);
        let perform = |starts: &[NonNull<u8>]| {
            if length > 0 {
                deed.perform(starts);
            }
        };
        Ok(aside::attempt(&mut self.asides, perform)?.is_some())
    }
}

impl std::fmt::Debug for TransferAside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TransferAside({} bytes)", self.length)
    }
}

impl Deed {
    /// At the bytes of its claims, of which there are some, in their order.
    fn perform(&self, starts: &[NonNull<u8>]) {
        let (first, last) = (starts[0], starts[starts.len() - 1]);
        match self {
            // SAFETY: the operation is at the buffer and writes to it; the range lies within.
            Self::Fill(pattern, range) => unsafe {
                pattern.write(first.byte_add(range.start), range.len());
            },
            // SAFETY: as above; what is staged is elsewhere, and as long.
            Self::In(staged, range) => unsafe {
                let target = first.byte_add(range.start);
                copy_nonoverlapping(staged.start().as_ptr(), target.as_ptr(), range.len());
            },
            // SAFETY: the operation is at both buffers, and the ranges lie within; they are apart.
            Self::Between(from, to) => unsafe {
                let (source, target) = (first.byte_add(from.start), last.byte_add(to.start));
                copy_nonoverlapping(source.as_ptr(), target.as_ptr(), from.len());
            },
            Self::Out(range, target) => {
                let target = target.0.lock();
                if let Some(Address(target)) = *target {
                    // SAFETY: the operation is at the buffer and reads it; the range lies within. The
                    // target is lent for as many bytes while this lock is held.
                    unsafe {
                        let source = first.byte_add(range.start);
                        copy_nonoverlapping(source.as_ptr(), target.as_ptr(), range.len());
                    }
                }
            }
        }
    }
}

/// Memory of the host's that a copy writes to, until it is withdrawn.
struct Target(Mutex<Option<Address>>);

struct Address(NonNull<u8>);

// SAFETY: an address gives no access by itself.
unsafe impl Send for Address {}

/// Memory that is lent to a copy, for as long as this lives.
pub struct Wanted(Arc<Target>);

impl Drop for Wanted {
    /// Waits while the copy is at it.
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}

/// What writing this range means for the buffer.
fn written(buffer: &Buffer, range: &Range<usize>) -> Claim {
    let whole = range.len() == buffer.nbytes();
    buffer.claim(if whole {
        Access::Overwrite
    } else {
        Access::Patch
    })
}

/// Checks that a range of bytes lies within so many.
fn within(nbytes: usize, range: Range<usize>) -> Result<Range<usize>, Error> {
    if range.start <= range.end && range.end <= nbytes {
        return Ok(range);
    }
    Err(Error::invalid_argument(format!(
        "bytes {} to {} are not within a buffer of {nbytes} bytes",
        range.start, range.end
    )))
}

/// Bytes to be copied later.
enum Staged {
    Few([u8; Self::FEW]),
    Many(Block),
}

impl Staged {
    /// As many are kept in the operation itself.
    const FEW: usize = 32;

    fn new(source: &[u8]) -> Result<Self, Error> {
        if source.len() <= Self::FEW {
            let mut few = [0; Self::FEW];
            few[..source.len()].copy_from_slice(source);
            return Ok(Self::Few(few));
        }
        let block = runtime()?.pool.allocate(source.len())?;
        // SAFETY: the block is new, and at least as long as the source.
        unsafe {
            copy_nonoverlapping(source.as_ptr(), block.start().as_ptr(), source.len());
        }
        Ok(Self::Many(block))
    }

    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Few(bytes) => NonNull::from(bytes).cast(),
            Self::Many(block) => block.start(),
        }
    }
}

/// A pattern, repeated to eight bytes.
#[derive(Clone, Copy)]
struct Repeated([u8; 8]);

impl Repeated {
    fn new(pattern: &[u8], length: usize) -> Result<Self, Error> {
        if !matches!(pattern.len(), 1 | 2 | 4 | 8) {
            return Err(Error::invalid_argument(format!(
                "a pattern has 1, 2, 4 or 8 bytes, not {}",
                pattern.len()
            )));
        }
        if !length.is_multiple_of(pattern.len()) {
            return Err(Error::invalid_argument(format!(
                "{length} bytes hold no whole number of patterns of {} bytes",
                pattern.len()
            )));
        }
        Ok(Self(std::array::from_fn(|at| pattern[at % pattern.len()])))
    }

    /// # Safety
    /// `length` bytes from `start` on may be written, by nobody else.
    unsafe fn write(self, start: NonNull<u8>, length: usize) {
        if self.0 == [self.0[0]; 8] {
            // SAFETY: promised by the caller.
            return unsafe { start.write_bytes(self.0[0], length) };
        }
        // SAFETY: promised by the caller; memory of a pool is initialised.
        let bytes = unsafe { slice::from_raw_parts_mut(start.as_ptr(), length) };
        let (chunks, rest) = bytes.as_chunks_mut::<8>();
        chunks.fill(self.0);
        rest.copy_from_slice(&self.0[..rest.len()]);
    }
}

/// # Safety
/// `length` bytes from `start` on may be read: a whole number of elements.
unsafe fn copied<T: Pod>(start: Option<NonNull<u8>>, length: usize) -> Result<Vec<T>, Error> {
    let Some(start) = start else {
        return Ok(Vec::new());
    };
    let count = length / size_of::<T>().max(1);
    // Elements without a size take no byte.
    let length = count * size_of::<T>();
    let mut copy = Vec::new();
    copy.try_reserve_exact(count).map_err(|_| {
        Error::out_of_memory(format!("the host has no memory for {length} bytes more"))
    })?;
    // SAFETY: there is room for the elements, and any bytes are a value of a `Pod` type. A buffer is
    // aligned for more than bytes only at its start, so bytes are what is copied.
    unsafe {
        let target: *mut T = copy.as_mut_ptr();
        copy_nonoverlapping(start.as_ptr(), target.cast::<u8>(), length);
        copy.set_len(count);
    }
    Ok(copy)
}

impl Storage {
    /// Fills a storage that nobody else knows yet with a copy of `bytes`, which are as many.
    pub(crate) fn fill_with(&self, bytes: &[u8]) -> Result<(), Error> {
        debug_assert_eq!(bytes.len(), self.nbytes());
        self.fill_fresh(|start| {
            // SAFETY: the memory is new, and holds as many bytes.
            unsafe { copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
        })
    }
}
