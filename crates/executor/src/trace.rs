//! What ran when, for whoever looks on.
//!
//! # Protocol
//! A log is off, or on. While it is on,
//! * a submission mentions its strand, if it is the first, and puts a note in front of its operation, under
//!   the same lock: what it is called, who submitted it and when. A note takes no number; it costs the memory of the queue that it lies in, and
//!   no more;
//! * who runs the strand takes the note out and keeps it with the head until the operation has ended. Note
//!   and times then make a [`Slice`], which goes into the log *before* the timeline advances: whoever
//!   waited for the operation finds it there;
//! * a wait that is passed leaves an [`Arrow`], and if the strand parked a slice of its own.
//!
//! Off, a submission costs one relaxed load, and running an operation a look at a pointer of the head's.
//! A note that was queued while the log was on makes a slice if it still is, and else nothing.
//!
//! The log is short: whoever fills it calls the *reader*, which empties it, before it goes on. No lock
//! is held then but the head's.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::failure::{Failure, Fault, Site};
use crate::operation::{Kind, Operation};
use crate::point::Position;
use crate::process::generation;
use crate::strand::Strand;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// What an operation is.
#[derive(Clone, Debug)]
pub struct Description {
    /// A short name: that of its function, or what it does.
    pub name: Cow<'static, str>,
    /// Its kind, in one word.
    pub category: &'static str,
    /// The line that submitted it.
    pub site: Site,
    /// The sizes of all that it works on, in bytes.
    pub bytes: u64,
}

impl Description {
    /// An operation of which no more is known.
    #[must_use]
    pub fn of_kind(kind: Kind) -> Self {
        let category = match kind {
            Kind::Native => "native",
            Kind::Host => "host",
            Kind::Foreign => "foreign",
            Kind::Visit => "default",
            Kind::Wait => "wait",
            Kind::Mark | Kind::Brief | Kind::Epoch | Kind::Note => "marker",
        };
        Self {
            name: category.into(),
            category,
            site: Site::Unknown,
            bytes: 0,
        }
    }
}

/// Stands in front of an operation.
pub(crate) struct Note(Box<Noted>);

/// What is known of the operation at hand.
pub(crate) struct Noted {
    /// Its number, once it is at hand.
    n: u64,
    what: Description,
    submitted: u64,
    /// When it began, if it has.
    begun: u64,
    /// It is skipped because of this.
    skipped: Option<Arc<Failure>>,
    /// It failed by this, and its strand did not.
    failed: Option<Arc<Failure>>,
}

impl Operation for Note {
    const KIND: Kind = Kind::Note;

    fn run(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Note {
    /// What it tells of operation `n`, which is the next one.
    pub(crate) fn of(mut self, n: u64) -> Box<Noted> {
        self.0.n = n;
        self.0
    }
}

/// One operation that has ended.
#[derive(Debug)]
pub struct Slice {
    /// The id of its strand.
    pub strand: u64,
    /// Its number.
    pub n: u64,
    /// What it was.
    pub what: Description,
    /// When it was submitted, began and ended, in nanoseconds since the log was made.
    pub times: [u64; 3],
    /// The thread that ran it.
    pub thread: Arc<str>,
    /// Why it failed or was skipped.
    pub failure: Option<Arc<Failure>>,
    /// Whether it was skipped.
    pub is_skipped: bool,
}

/// A strand has passed a wait.
#[derive(Debug)]
pub struct Arrow {
    /// The id of the strand that was waited for, and the operation that the point lies behind.
    pub from: (u64, u64),
    /// The id of the strand that waited.
    pub to: u64,
}

/// What is told, in the order in which it happened to each strand.
#[derive(Debug)]
pub enum Entry {
    /// A strand of this id and name is mentioned for the first time.
    Strand(u64, String),
    /// An operation has ended.
    Slice(Box<Slice>),
    /// A wait has been passed.
    Arrow(Arrow),
}

/// Called by whoever fills the log. It takes the entries out.
pub type Reader = fn();

/// The log of an executor.
pub struct Log {
    is_on: AtomicBool,
    /// Which log it is, of all that this process and its parents have turned on.
    number: AtomicU64,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    reader: Option<Reader>,
    known: HashSet<u64>,
    strands: Vec<Weak<Strand>>,
}

thread_local! {
    static THREAD: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    /// Strands that this thread has mentioned, and in which log: what has been need not be looked for again.
    static MENTIONED: [Cell<(u64, u64)>; MENTIONS] = const { [const { Cell::new((0, 0)) }; MENTIONS] };
}
const MENTIONS: usize = 16;

/// Gives the calling thread a name, for threads that another language made.
pub fn name_thread(name: &str) {
    let _ = THREAD.try_with(|thread| *thread.borrow_mut() = Some(name.into()));
}

/// The name of the calling thread, or what stands for it.
#[must_use]
pub fn this_thread() -> Arc<str> {
    let name = || {
        let thread = std::thread::current();
        match thread.name() {
            Some(name) => name.into(),
            None => format!("{:?}", thread.id()).into(),
        }
    };
    let known = THREAD.try_with(|thread| thread.borrow_mut().get_or_insert_with(name).clone());
    known.unwrap_or_else(|_| name())
}

impl State {
    /// Notes that there is this strand, if a log is kept.
    fn mention(&mut self, strand: &Arc<Strand>) {
        if self.reader.is_some() && self.known.insert(strand.id()) {
            self.strands.push(Arc::downgrade(strand));
            let mention = Entry::Strand(strand.id(), strand.name());
            self.entries.push(mention);
        }
    }
}

impl Log {
    /// Entries that make it full.
    const FULL: usize = 1 << 14;

    pub(crate) fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            number: AtomicU64::new(generation() << 32),
            start: Instant::now(),
            state: Mutex::new(State::default()),
        }
    }

    /// Whether it is on.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        cfg!(not(any(loom, shuttle))) && self.is_on.load(Ordering::Relaxed)
    }

    /// Turns it on. `false`: it was.
    pub fn start(&self, reader: Reader) -> bool {
        let mut state = self.state.lock();
        if state.reader.is_some() {
            return false;
        }
        *state = State {
            reader: Some(reader),
            ..State::default()
        };
        self.number.fetch_add(1, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
        true
    }

    /// Turns it off. What it holds stays to be [taken](Self::take).
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.reader = None;
        let strands = std::mem::take(&mut state.strands);
        drop(state);
        drop(strands);
    }

    /// Takes out what it holds.
    #[must_use]
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.state.lock().entries)
    }

    /// Now, in nanoseconds since the log was made.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The strands that were mentioned and still live.
    #[must_use]
    pub fn strands(&self) -> Vec<Arc<Strand>> {
        let mut state = self.state.lock();
        state.strands.retain(|strand| strand.strong_count() > 0);
        state.strands.iter().filter_map(Weak::upgrade).collect()
    }

    /// The note for an operation that is submitted now, if the log is on.
    #[inline]
    pub(crate) fn note<T: Operation>(&self, strand: &Arc<Strand>, operation: &T) -> Option<Note> {
        self.is_on().then(|| {
            self.mention(strand);
            self.note_of(operation.describe())
        })
    }

    #[cold]
    fn mention(&self, strand: &Arc<Strand>) {
        let mention = (self.number.load(Ordering::Relaxed), strand.id());
        let slot = strand.id() as usize % MENTIONS;
        let before = MENTIONED.try_with(|mentioned| mentioned[slot].replace(mention));
        if before != Ok(mention) {
            // Not the reader's turn: the submitter holds locks.
            self.state.lock().mention(strand);
        }
    }

    #[cold]
    fn note_of(&self, what: Description) -> Note {
        Note(Box::new(Noted {
            n: 0,
            what,
            submitted: self.now(),
            begun: 0,
            skipped: None,
            failed: None,
        }))
    }

    /// The note of a wait, operation `n`, at which a strand parks now, if the log is on.
    pub(crate) fn note_wait(&self, n: u64) -> Option<Box<Noted>> {
        let wait = || self.note_of(Description::of_kind(Kind::Wait)).of(n);
        self.is_on().then(wait).map(|mut noted| {
            noted.begun = noted.submitted;
            noted
        })
    }

    /// The operation at hand begins.
    #[cold]
    pub(crate) fn begin(&self, noted: &mut Noted) {
        noted.begun = self.now();
    }

    /// Operation `n` of `strand` has ended.
    #[cold]
    #[expect(clippy::boxed_local, reason = "it lies with the strand in a box")]
    pub(crate) fn end(
        &self,
        strand: &Arc<Strand>,
        n: u64,
        noted: Box<Noted>,
        failure: Option<Arc<Failure>>,
    ) {
        let is_withdrawn = strand.is_inline() && noted.begun == 0;
        if noted.n != n || is_withdrawn {
            // Of one that ended while the log was off, or whose thread gave up waiting for its turn.
            return;
        }
        let ended = self.now();
        let Noted {
            n,
            what,
            submitted,
            begun,
            skipped,
            failed,
        } = *noted;
        let failure = failure.or(failed);
        // One that came to its bytes and found them failed did not run either.
        let is_of_another = |failure: &Arc<Failure>| {
            !strand.is_inline()
                && (failure.origin.strand_id, failure.origin.operation) != (strand.id(), n)
        };
        let is_skipped = skipped.is_some() || failure.as_ref().is_some_and(is_of_another);
        let slice = Slice {
            strand: strand.id(),
            n,
            what,
            times: [submitted, if begun == 0 { ended } else { begun }, ended],
            thread: this_thread(),
            failure: skipped.or(failure),
            is_skipped,
        };
        self.add(strand, Entry::Slice(Box::new(slice)));
    }

    /// `strand` has passed a wait for `position`.
    pub(crate) fn passed(&self, strand: &Arc<Strand>, position: &Position) {
        if self.is_on() {
            let (from, to) = ((position.strand().id(), position.n()), strand.id());
            self.add(strand, Entry::Arrow(Arrow { from, to }));
        }
    }

    fn add(&self, strand: &Arc<Strand>, entry: Entry) {
        let mut state = self.state.lock();
        let Some(reader) = state.reader else { return };
        state.mention(strand);
        state.entries.push(entry);
        let is_full = state.entries.len() >= Self::FULL;
        drop(state);
        if is_full {
            reader();
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}

impl Noted {
    /// Whether it is of operation `n`.
    pub(crate) fn is_of(&self, n: u64) -> bool {
        self.n == n
    }

    /// What it is, as the thread that runs it knows better.
    pub(crate) fn describe(&mut self, what: Description) {
        self.what = what;
    }

    pub(crate) fn skip(&mut self, why: &Arc<Failure>) {
        self.skipped = Some(why.clone());
    }

    /// It failed by this, which on that strand is its own or another's, for which it did not run.
    pub(crate) fn fail(&mut self, failure: Arc<Failure>, strand: u64) {
        if (failure.origin.strand_id, failure.origin.operation) == (strand, self.n) {
            self.failed = Some(failure);
        } else {
            self.skipped = Some(failure);
        }
    }
}
