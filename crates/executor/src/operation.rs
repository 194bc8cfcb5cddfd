//! One unit of work, and the queue that stores many of them without an allocation each.
//!
//! [`Operations`] lays records end to end in one growing block of words: a pointer to the type's
//! [`Table`], then the operation itself. A closure that captures one word takes 24 bytes and no
//! allocation of its own; one larger than [`INLINE_WORDS`] is boxed first. Records may be moved
//! when the block grows, as any Rust value may.
//!
//! This is the only file of the crate that handles operations by their bytes. Its invariant: from
//! `read` to the end of `words` lie whole records, each written by `push` and not yet read out.
#![allow(
    unsafe_code,
    reason = "type-erased storage; each block states its reason"
)]

use std::any::TypeId;
use std::mem::{MaybeUninit, align_of, size_of};
use std::sync::Arc;

use crate::failure::{Failure, Fault, contain};
use crate::trace::Description;

/// What an operation needs to run, and where it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs on a native worker.
    Native,
    /// May block: runs on a thread of the host lane.
    Host,
    /// Is taken and run by a thread that another language made; see [`crate::ForeignThread`].
    Foreign,
    /// The runtime's own, brief and harmless: runs on whichever thread reaches it.
    Brief,
    /// As brief, and runs also where an earlier failure skips the others.
    Mark,
    /// Belongs to a thread that waits for its turn on an inline strand.
    Visit,
    /// Waits for a point of another strand.
    Wait,
    /// Everything behind it belongs to a new epoch.
    Epoch,
    /// Tells of the operation right behind it.
    Note,
}

/// One unit of work.
///
/// An operation is consumed exactly once: by `run`, by `skip`, or by the thread that takes it.
pub trait Operation: Send + 'static {
    /// Where it may run.
    const KIND: Kind;

    /// Does the work. What it captured is gone when this returns, and no panic comes out.
    ///
    /// # Errors
    /// A fault fails the strand.
    fn run(self) -> Result<(), Fault>;

    /// Lets the operation go unrun, because of `why`.
    fn skip(self, why: &Arc<Failure>)
    where
        Self: Sized,
    {
        let _ = why;
    }

    /// What it is, for a trace. Asked before it is submitted, and only while there is a trace.
    fn describe(&self) -> Description {
        Description::of_kind(Self::KIND)
    }
}

/// Operations of more words than this are boxed.
const INLINE_WORDS: usize = 24;

type Word = MaybeUninit<u64>;

/// What is known of an operation whose type is not: one static table per type.
struct Table {
    kind: Kind,
    words: usize,
    type_id: fn() -> TypeId,
    run: unsafe fn(*const Word) -> Result<(), Fault>,
    skip: unsafe fn(*const Word, &Arc<Failure>),
    drop: unsafe fn(*const Word),
}

struct TableOf<T>(std::marker::PhantomData<T>);

impl<T: Operation> TableOf<T> {
    const TABLE: &'static Table = &Table {
        kind: T::KIND,
        words: size_of::<T>().div_ceil(size_of::<Word>()),
        type_id: TypeId::of::<T>,
        run: run::<T>,
        skip: skip::<T>,
        drop: drop_unrun::<T>,
    };
}

/// # Safety
/// `at` holds a `T` that nobody else reads out.
unsafe fn run<T: Operation>(at: *const Word) -> Result<(), Fault> {
    // SAFETY: promised by the caller.
    unsafe { at.cast::<T>().read() }.run()
}

/// # Safety
/// As for [`run`].
unsafe fn skip<T: Operation>(at: *const Word, why: &Arc<Failure>) {
    // SAFETY: promised by the caller.
    unsafe { at.cast::<T>().read() }.skip(why);
}

/// # Safety
/// As for [`run`].
unsafe fn drop_unrun<T: Operation>(at: *const Word) {
    // SAFETY: promised by the caller.
    drop(unsafe { at.cast::<T>().read() });
}

/// An operation too large or too strictly aligned for the queue.
struct Boxed<T>(Box<T>);

impl<T: Operation> Operation for Boxed<T> {
    const KIND: Kind = T::KIND;

    fn run(self) -> Result<(), Fault> {
        (*self.0).run()
    }

    fn skip(self, why: &Arc<Failure>) {
        (*self.0).skip(why);
    }

    fn describe(&self) -> Description {
        self.0.describe()
    }
}

const fn needs_box<T>() -> bool {
    size_of::<T>() > INLINE_WORDS * size_of::<Word>() || align_of::<T>() > align_of::<Word>()
}

/// A queue of operations, oldest first.
#[derive(Default)]
pub(crate) struct Operations {
    words: Vec<Word>,
    read: usize,
}

impl Operations {
    /// An empty block of at most this many words, which is a small operation, is kept for the next
    /// one; a larger one goes.
    const KEPT_WORDS: usize = 4;

    /// A block of more words than this goes as soon as it is empty, and not only when the strand
    /// goes idle: who waits for the last operation finds the memory free.
    const LARGE_WORDS: usize = 1 << 12;

    pub(crate) fn is_empty(&self) -> bool {
        self.read == self.words.len()
    }

    /// Adds `operation` behind the others.
    #[inline]
    pub(crate) fn push<T: Operation>(&mut self, operation: T) {
        if needs_box::<T>() {
            self.write(Boxed(Box::new(operation)));
        } else {
            self.write(operation);
        }
    }

    #[inline]
    fn write<T: Operation>(&mut self, operation: T) {
        let table = TableOf::<T>::TABLE;
        let end = self.words.len();
        self.words.reserve(1 + table.words);
        // SAFETY: `reserve` made room for the record; `T` is aligned to a word at most, as `push`
        // checked; the words between the old and the new end are the record just written.
        unsafe {
            let record = self.words.as_mut_ptr().add(end);
            record.cast::<&'static Table>().write(table);
            record.add(1).cast::<T>().write(operation);
            self.words.set_len(end + 1 + table.words);
        }
    }

    /// The kind of the next operation.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Kind> {
        self.table().map(|table| table.kind)
    }

    /// The first kind that needs a lane or none, looking no further than `depth` records.
    pub(crate) fn peek_work(&self, depth: usize) -> Option<Kind> {
        let mut at = self.read;
        for _ in 0..depth {
            let table = self.table_at(at)?;
            if !matches!(table.kind, Kind::Wait | Kind::Epoch | Kind::Note) {
                return Some(table.kind);
            }
            at += 1 + table.words;
        }
        None
    }

    /// Runs the next operation.
    #[inline]
    pub(crate) fn run_next(&mut self) -> Result<(), Fault> {
        match self.advance() {
            // SAFETY: `advance` gave this record up, so it is read out once, here.
            Some((table, at)) => unsafe { (table.run)(at) },
            None => Ok(()),
        }
    }

    /// Skips the next operation because of `why`. A panic in a destructor ends there.
    pub(crate) fn skip_next(&mut self, why: &Arc<Failure>) {
        if let Some((table, at)) = self.advance() {
            // SAFETY: as in `run_next`.
            contain(|| unsafe { (table.skip)(at, why) });
        }
    }

    /// Takes the next operation out, if it is a `T`.
    pub(crate) fn take_next<T: Operation>(&mut self) -> Option<T> {
        if needs_box::<T>() {
            return self.read_next::<Boxed<T>>().map(|boxed| *boxed.0);
        }
        self.read_next()
    }

    fn read_next<T: Operation>(&mut self) -> Option<T> {
        if (self.table()?.type_id)() != TypeId::of::<T>() {
            return None;
        }
        let (_, at) = self.advance()?;
        // SAFETY: the table says that the record is a `T`, and `advance` gave it up.
        let operation = unsafe { at.cast::<T>().read() };
        if self.words.capacity() > Self::LARGE_WORDS {
            self.trim();
        }
        Some(operation)
    }

    /// Frees the block of an empty queue unless it is small.
    pub(crate) fn trim(&mut self) {
        if self.is_empty() && self.words.capacity() > Self::KEPT_WORDS {
            *self = Self::default();
        }
    }

    /// Keeps the block of `other`, which is empty as this is, if this has none.
    pub(crate) fn adopt(&mut self, mut other: Self) {
        if self.words.capacity() == 0 {
            other.trim();
            *self = other;
        }
    }

    #[inline]
    fn table(&self) -> Option<&'static Table> {
        self.table_at(self.read)
    }

    #[inline]
    fn table_at(&self, at: usize) -> Option<&'static Table> {
        let record = self.words.get(at)?;
        // SAFETY: callers pass `read` or the end of a record behind it, so a record starts here.
        Some(unsafe { record.as_ptr().cast::<&'static Table>().read() })
    }

    /// Steps over the next record, which the caller reads out before it touches the queue again.
    #[inline]
    fn advance(&mut self) -> Option<(&'static Table, *const Word)> {
        let table = self.table()?;
        // SAFETY: the operation lies directly behind its table, within the block.
        let at = unsafe { self.words.as_ptr().add(self.read + 1) };
        self.read += 1 + table.words;
        if self.is_empty() {
            self.words.clear();
            self.read = 0;
        }
        Some((table, at))
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        while let Some((table, at)) = self.advance() {
            // SAFETY: as in `run_next`.
            contain(|| unsafe { (table.drop)(at) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    type Log = Arc<Mutex<Vec<String>>>;

    struct Noted<const WORDS: usize> {
        log: Log,
        fill: [u64; WORDS],
    }

    impl<const WORDS: usize> Operation for Noted<WORDS> {
        const KIND: Kind = Kind::Native;

        fn run(self) -> Result<(), Fault> {
            let sum: u64 = self.fill.iter().sum();
            self.log.lock().push(format!("run {WORDS} {sum}"));
            Ok(())
        }

        fn skip(self, _why: &Arc<Failure>) {
            self.log.lock().push(format!("skip {WORDS}"));
        }
    }

    impl<const WORDS: usize> Drop for Noted<WORDS> {
        fn drop(&mut self) {
            self.log.lock().push(format!("drop {WORDS}"));
        }
    }

    #[repr(align(64))]
    struct Aligned(Log);

    impl Operation for Aligned {
        const KIND: Kind = Kind::Host;

        fn run(self) -> Result<(), Fault> {
            assert_eq!((&raw const self).addr() % 64, 0);
            self.0.lock().push("aligned".into());
            Ok(())
        }
    }

    fn new_log() -> Log {
        Arc::new(Mutex::new(Vec::new()))
    }

    fn noted<const WORDS: usize>(log: &Log) -> Noted<WORDS> {
        Noted {
            log: log.clone(),
            fill: [1; WORDS],
        }
    }

    fn entries(log: &Log) -> Vec<String> {
        std::mem::take(&mut log.lock())
    }

    #[test]
    fn operations_of_every_size_run_in_order_and_drop_once() {
        let (log, mut queue) = (new_log(), Operations::default());
        queue.push(noted::<0>(&log));
        queue.push(noted::<3>(&log));
        queue.push(Aligned(log.clone()));
        queue.push(noted::<200>(&log));
        assert_eq!(queue.peek(), Some(Kind::Native));
        for _ in 0..4 {
            queue.run_next().unwrap();
        }
        assert!(queue.is_empty());
        let expected = [
            "run 0 0",
            "drop 0",
            "run 3 3",
            "drop 3",
            "aligned",
            "run 200 200",
            "drop 200",
        ];
        assert_eq!(entries(&log), expected);
        assert_eq!(Arc::strong_count(&log), 1);
    }

    #[test]
    fn a_dropped_queue_drops_what_it_holds_once() {
        let (log, mut queue) = (new_log(), Operations::default());
        queue.push(noted::<1>(&log));
        queue.push(noted::<100>(&log));
        drop(queue);
        assert_eq!(entries(&log), ["drop 1", "drop 100"]);
    }

    #[test]
    fn taking_needs_the_right_type() {
        let (log, mut queue) = (new_log(), Operations::default());
        queue.push(noted::<1>(&log));
        assert!(queue.take_next::<Noted<2>>().is_none());
        let taken = queue.take_next::<Noted<1>>().unwrap();
        assert!(queue.is_empty());
        assert_eq!(entries(&log), Vec::<String>::new());
        drop(taken);
        assert_eq!(entries(&log), ["drop 1"]);
    }

    #[test]
    fn a_large_empty_queue_gives_its_memory_back() {
        let (log, mut queue) = (new_log(), Operations::default());
        for _ in 0..100 {
            queue.push(noted::<2>(&log));
        }
        for _ in 0..100 {
            queue.run_next().unwrap();
        }
        queue.trim();
        assert_eq!(queue.words.capacity(), 0);
    }
}
