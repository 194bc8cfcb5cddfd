//! The caching pool of host memory.
//!
//! Blocks come in size classes, four to each doubling, so at most a fifth of one is unused. A block
//! that is given back is kept for the next one of its class: the system would have to clear it again,
//! page by page. What is kept never exceeds the most that was ever in use at once; it goes back to the
//! system on demand, and when memory runs out.
//!
//! All blocks are aligned to 64 bytes, a cache line and the widest vector. Large ones are aligned to
//! huge pages and advised for them, which doubles the bandwidth of one thread. Fresh memory is zero,
//! reused memory holds what was there: always initialised.
#![allow(unsafe_code, reason = "allocates memory; each block states its reason")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use clika_executor::faults::{self, Fault};
use clika_executor::generation;
use clika_executor::sync::Mutex;

use crate::error::Error;

/// Alignment of every block, in bytes.
pub(crate) const ALIGNMENT: usize = 64;
/// Blocks of at least this size are aligned to it and made of huge pages where the system has them.
const HUGE: usize = 2 << 20;
const SMALLEST: usize = 64;
/// Size classes to each doubling.
const STEPS: usize = 4;
const CLASSES: usize = STEPS * (usize::BITS - SMALLEST.trailing_zeros()) as usize;
/// What freed memory is filled with where debug assertions are on.
const POISON: u8 = 0xD5;

/// What a device's memory pool holds, as of one moment. Sizes are in bytes, and those of the blocks
/// behind the buffers: up to a quarter above what the buffers asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes in use by buffers and by copies under way.
    pub live_bytes: usize,
    /// Bytes kept for reuse.
    pub cached_bytes: usize,
    /// The most that was in use at once.
    pub peak_bytes: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// Blocks handed out since the start.
    pub allocations: u64,
    /// How many of those were reused.
    pub reused: u64,
}

/// The pool of one device.
pub(crate) struct Pool {
    generation: u64,
    /// Bytes that may be in use at once.
    limit: usize,
    state: Mutex<State>,
}

struct State {
    free: [Vec<Memory>; CLASSES],
    stats: MemoryStats,
}

/// The memory of one block.
struct Memory {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: memory belongs to no thread.
unsafe impl Send for Memory {}

/// A block of memory, which goes back to its pool when it is dropped.
pub(crate) struct Block {
    memory: ManuallyDrop<Memory>,
    pool: Arc<Pool>,
}

// SAFETY: a shared block gives out its address and no access.
unsafe impl Sync for Block {}

/// The class that holds `size` bytes: its number and its size. None if there is no such memory.
fn class_of(size: usize) -> Option<(usize, usize)> {
    if size <= SMALLEST {
        return Some((0, SMALLEST));
    }
    if size > isize::MAX as usize / 2 {
        return None;
    }
    // The doubling that it lies in, and the quarter of that.
    let doubling = (size - 1).ilog2() as usize;
    let step = (1_usize << doubling) / STEPS;
    let quarter = (size - (1 << doubling)).div_ceil(step);
    let class = (doubling - SMALLEST.ilog2() as usize) * STEPS + quarter;
    Some((class, (1 << doubling) + quarter * step))
}

impl Pool {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let limit = match usize::try_from(limit) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        };
        Arc::new(Self {
            generation: generation(),
            limit,
            state: Mutex::new(State {
                free: std::array::from_fn(|_| Vec::new()),
                stats: MemoryStats::default(),
            }),
        })
    }

    /// A block of at least `size` bytes, whose bytes are initialised.
    pub(crate) fn allocate(self: &Arc<Self>, size: usize) -> Result<Block, Error> {
        let memory = self.take(size).ok_or_else(|| self.exhausted(size))?;
        Ok(Block {
            memory: ManuallyDrop::new(memory),
            pool: self.clone(),
        })
    }

    fn take(&self, size: usize) -> Option<Memory> {
        let (class, size) = class_of(size)?;
        if faults::strikes(Fault::Allocation) {
            return None;
        }
        let mut state = self.state.lock();
        if let Some(memory) = state.free[class].pop() {
            state.stats.cached_bytes -= memory.size;
            state.stats.reused += 1;
            state.stats.count(memory.size);
            return Some(memory);
        }
        let used = state.stats.live_bytes.checked_add(size)?;
        if used > self.limit {
            return None;
        }
        let crowded = used.saturating_add(state.stats.cached_bytes) > self.limit;
        let released = crowded.then(|| state.release());
        // Counted before the lock goes, so that the limit holds.
        state.stats.count(size);
        drop(state);
        drop(released);
        let memory = Memory::new(size).or_else(|| {
            tracing::debug!(
                size,
                "the system has no memory: what was kept for reuse goes back to it"
            );
            self.release();
            Memory::new(size)
        });
        if memory.is_none() {
            self.state.lock().stats.uncount(size);
        }
        memory
    }

    fn give_back(&self, memory: Memory) {
        if self.generation != generation() {
            // A parent's, whose lock a thread may have held at the fork.
            let _ = ManuallyDrop::new(memory);
            return;
        }
        memory.poison();
        let Some((class, _)) = class_of(memory.size) else {
            return;
        };
        let mut state = self.state.lock();
        state.stats.live_bytes -= memory.size;
        state.stats.live_blocks -= 1;
        // Of more than that, the sizes that are not in use now go.
        let most = state.stats.peak_bytes;
        let crowded = state.stats.cached_bytes + memory.size > most;
        let released = crowded.then(|| state.release());
        state.stats.cached_bytes += memory.size;
        state.free[class].push(memory);
        drop(state);
        drop(released);
    }

    /// Gives what is kept for reuse back to the system.
    pub(crate) fn release(&self) {
        let released = self.state.lock().release();
        drop(released);
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        self.state.lock().stats
    }

    fn exhausted(&self, size: usize) -> Error {
        let live = self.stats().live_bytes;
        Error::out_of_memory(format!(
            "there is no memory for a buffer of {size} bytes: {live} bytes are in use, and {} may \
             be. Drop buffers that are not needed, or make smaller ones",
            self.limit
        ))
    }
}

impl State {
    /// Takes out all that is kept.
    fn release(&mut self) -> Vec<Vec<Memory>> {
        self.stats.cached_bytes = 0;
        self.free.iter_mut().map(std::mem::take).collect()
    }
}

impl MemoryStats {
    fn count(&mut self, size: usize) {
        self.live_bytes += size;
        self.live_blocks += 1;
        self.allocations += 1;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    fn uncount(&mut self, size: usize) {
        self.live_bytes -= size;
        self.live_blocks -= 1;
        self.allocations -= 1;
    }
}

impl Memory {
    fn new(size: usize) -> Option<Self> {
        let start = if size < HUGE {
            let layout = Self::layout(size)?;
            // SAFETY: the size is not zero, since no class is.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        } else {
            huge::map(size)
        };
        start.map(|start| Self { start, size })
    }

    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size, ALIGNMENT).ok()
    }

    fn poison(&self) {
        if cfg!(debug_assertions) {
            // SAFETY: the memory is this value's own, and nobody uses it any more.
            unsafe { self.start.as_ptr().write_bytes(POISON, self.size) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.size < HUGE {
            if let Some(layout) = Self::layout(self.size) {
                // SAFETY: allocated with this layout, in `new`.
                unsafe { dealloc(self.start.as_ptr(), layout) };
            }
        } else {
            huge::unmap(self.start, self.size);
        }
    }
}

impl Block {
    /// The first byte. Who reads or writes behind it sees to it that nobody else does.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory.start
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: taken once, since this is its owner's drop.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        self.pool.give_back(memory);
    }
}

/// Large blocks, straight from the system.
mod huge {
    use std::ptr::{NonNull, null_mut};

    use super::HUGE;

    /// Zeroed memory of `size` bytes that begins at a huge page.
    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        let length = size.checked_add(HUGE)?;
        // SAFETY: asks for new pages, and touches none.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(HUGE);
        // SAFETY: both ends lie in the pages that were just mapped, and the middle is not touched;
        // the advice changes no byte.
        unsafe {
            let first = start.add(before);
            let end = round_up(size);
            cut(start, before);
            cut(first.add(end), length - before - end);
            libc::madvise(first.cast(), size, libc::MADV_HUGEPAGE);
            NonNull::new(first)
        }
    }

    /// The system cuts at pages, of which none is larger than this here.
    fn round_up(size: usize) -> usize {
        size.next_multiple_of(1 << 16)
    }

    /// # Safety
    /// These pages are mapped, and nobody uses them.
    unsafe fn cut(start: *mut u8, length: usize) {
        if length > 0 {
            // SAFETY: promised by the caller.
            unsafe { libc::munmap(start.cast(), length) };
        }
    }

    pub(super) fn unmap(start: NonNull<u8>, size: usize) {
        // SAFETY: mapped with this size by `map`, and its owner gives it up.
        unsafe { cut(start.as_ptr(), round_up(size)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        let sizes =
            (0..200).chain((8..40).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        for size in sizes {
            let (class, rounded) = class_of(size).unwrap();
            assert!(rounded >= size && class < CLASSES);
            assert_eq!(
                class_of(rounded),
                Some((class, rounded)),
                "a class holds itself"
            );
            assert!(
                rounded <= SMALLEST || rounded * 4 <= size * 5,
                "{size} in {rounded}"
            );
            assert!(rounded < HUGE || rounded % (1 << 16) == 0);
        }
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn what_is_given_back_is_reused_and_counted() {
        let pool = Pool::new(1 << 30);
        let first = pool.allocate(1000).unwrap();
        let address = first.start();
        drop(first);
        let cached = pool.stats();
        assert_eq!(
            (cached.live_bytes, cached.cached_bytes, cached.peak_bytes),
            (0, 1024, 1024)
        );
        let again = pool.allocate(1010).unwrap();
        assert_eq!(again.start(), address);
        let stats = pool.stats();
        assert_eq!(
            (stats.live_blocks, stats.allocations, stats.reused),
            (1, 2, 1)
        );
        assert_eq!((stats.live_bytes, stats.cached_bytes), (1024, 0));
        drop(again);
        pool.release();
        assert_eq!(pool.stats().cached_bytes, 0);
    }

    #[test]
    fn a_limit_is_an_error_and_what_is_kept_goes_first() {
        let pool = Pool::new(4096);
        drop(pool.allocate(2048).unwrap());
        let most = pool.allocate(4096).unwrap();
        assert_eq!(pool.stats().cached_bytes, 0);
        let error = pool.allocate(64).err().unwrap();
        assert!(error.is_out_of_memory(), "{error}");
        drop(most);
        assert!(pool.allocate(usize::MAX).err().unwrap().is_out_of_memory());
        assert!(pool.allocate(64).is_ok());
    }

    #[test]
    fn large_blocks_are_aligned_and_zero() {
        let pool = Pool::new(0);
        let block = pool.allocate(5 << 20).unwrap();
        assert_eq!(block.start().addr().get() % HUGE, 0);
        // SAFETY: the block is this test's own, and holds that much.
        let bytes = unsafe { std::slice::from_raw_parts(block.start().as_ptr(), 5 << 20) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
