//! The sequential model: what the promises say about a program whose order of calls is known.

use std::collections::{BTreeMap, BTreeSet};

use crate::journal::Runs;
use crate::work::{Ends, Id};

/// A point of a stream's timeline, and the epoch it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) stream: usize,
    epoch: usize,
    n: usize,
}

/// What is submitted: work, or a wait of its stream.
enum What {
    Work { id: Id, ends: Ends, cancelled: bool },
    Wait(Mark),
}

/// One submission and the mark behind it.
struct Entry {
    at: Mark,
    what: What,
}

/// What is known of a stream.
#[derive(Default)]
struct Row {
    epoch: usize,
    submitted: usize,
    /// All up to here is known to be done.
    reached: usize,
    handles: usize,
    /// How many acknowledgements there had been when the last handle went.
    orphaned: Option<usize>,
}

/// What a wait, or the taking of a result, must return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Well,
    /// The failure of this operation.
    Failed(Id),
    /// Skipped because of this operation's failure.
    Skipped(Id),
    Cancelled,
}

/// The state of the model.
#[derive(Default)]
pub(crate) struct Model {
    rows: Vec<Row>,
    entries: Vec<Entry>,
    /// In the order in which they were acknowledged.
    acknowledged: Vec<Id>,
}

impl Model {
    pub(crate) fn create(&mut self) -> usize {
        self.rows.push(Row {
            handles: 1,
            ..Row::default()
        });
        self.rows.len() - 1
    }

    /// One more handle of a stream: an event or a future.
    pub(crate) fn hold(&mut self, stream: usize) {
        self.rows[stream].handles += 1;
    }

    pub(crate) fn let_go(&mut self, stream: usize) {
        let row = &mut self.rows[stream];
        row.handles -= 1;
        if row.handles == 0 {
            row.orphaned = Some(self.acknowledged.len());
        }
    }

    /// The mark behind all that was submitted.
    pub(crate) fn mark(&self, stream: usize) -> Mark {
        let row = &self.rows[stream];
        Mark {
            stream,
            epoch: row.epoch,
            n: row.submitted,
        }
    }

    pub(crate) fn submit(&mut self, stream: usize, id: Id, ends: Ends) -> Mark {
        self.push(
            stream,
            What::Work {
                id,
                ends,
                cancelled: false,
            },
        )
    }

    /// A stream's wait for its own past changes nothing.
    pub(crate) fn wait(&mut self, stream: usize, mark: Mark) {
        if mark.stream != stream {
            self.push(stream, What::Wait(mark));
        }
    }

    fn push(&mut self, stream: usize, what: What) -> Mark {
        self.rows[stream].submitted += 1;
        let at = self.mark(stream);
        self.entries.push(Entry { at, what });
        at
    }

    /// Everything up to `mark` is done.
    pub(crate) fn reach(&mut self, mark: Mark) {
        let row = &mut self.rows[mark.stream];
        row.reached = row.reached.max(mark.n);
    }

    pub(crate) fn is_reached(&self, mark: Mark) -> bool {
        self.rows[mark.stream].reached >= mark.n
    }

    /// The work that ends at `mark` was cancelled in time.
    pub(crate) fn cancel(&mut self, mark: Mark) {
        for entry in &mut self.entries {
            if let What::Work { cancelled, .. } = &mut entry.what
                && (entry.at.stream, entry.at.n) == (mark.stream, mark.n)
            {
                *cancelled = true;
            }
        }
    }

    /// The first failure of each epoch of each stream: where it is, and which operation began it.
    ///
    /// Entries refer to earlier ones only, so one pass in the order of submission tells.
    fn failures(&self) -> BTreeMap<(usize, usize), (usize, Id)> {
        let mut failures = BTreeMap::new();
        for Entry { at, what } in &self.entries {
            let origin = match *what {
                What::Work {
                    ends: Ends::Well, ..
                }
                | What::Work {
                    cancelled: true, ..
                } => None,
                What::Work { id, .. } => Some(id),
                What::Wait(mark) => covered(&failures, mark),
            };
            if let Some(origin) = origin {
                failures
                    .entry((at.stream, at.epoch))
                    .or_insert((at.n, origin));
            }
        }
        failures
    }

    /// The failure that a mark covers.
    pub(crate) fn failure(&self, mark: Mark) -> Option<Id> {
        covered(&self.failures(), mark)
    }

    /// What a wait for `mark` must return.
    pub(crate) fn waited(&self, mark: Mark) -> Expected {
        self.failure(mark).map_or(Expected::Well, Expected::Failed)
    }

    /// What the result of the work `id` that ends at `mark` must be.
    pub(crate) fn result(&self, id: Id, mark: Mark) -> Expected {
        if self.is_cancelled(id) {
            return Expected::Cancelled;
        }
        match self.failure(mark) {
            None => Expected::Well,
            Some(origin) if origin == id => Expected::Failed(id),
            Some(origin) => Expected::Skipped(origin),
        }
    }

    /// What the results of all the work of a stream must be, in order.
    pub(crate) fn outcomes(&self, stream: usize) -> Vec<Expected> {
        let of_stream = self
            .entries
            .iter()
            .filter(|entry| entry.at.stream == stream);
        let outcome = |entry: &Entry| match entry.what {
            What::Work { id, .. } => Some(self.result(id, entry.at)),
            What::Wait(_) => None,
        };
        of_stream.filter_map(outcome).collect()
    }

    pub(crate) fn is_cancelled(&self, id: Id) -> bool {
        self.entries.iter().any(|entry| {
            matches!(entry.what, What::Work { id: other, cancelled: true, .. } if other == id)
        })
    }

    /// The failure of `mark`'s epoch was returned by a wait that acknowledges.
    pub(crate) fn acknowledge(&mut self, mark: Mark, origin: Id) {
        self.acknowledged.push(origin);
        let row = &mut self.rows[mark.stream];
        if row.epoch == mark.epoch {
            row.epoch += 1;
        }
    }

    /// Checks what ran, and in which order, once all is over.
    pub(crate) fn check_runs(&self, runs: &Runs) -> Result<(), String> {
        for stream in 0..self.rows.len() {
            runs.in_a_row(&self.work(|at| at.stream == stream))?;
        }
        let failures = self.failures();
        for Entry { at, what } in &self.entries {
            let failed = failures.get(&(at.stream, at.epoch)).copied();
            match *what {
                What::Work { id, cancelled, .. } => {
                    let runs_by_promise = !cancelled && failed.is_none_or(|(n, _)| n >= at.n);
                    if runs.ran(id) != runs_by_promise {
                        return Err(format!("{id:?} should run: {runs_by_promise}"));
                    }
                }
                // Also where the stream had failed: what follows the acknowledgement relies on it.
                What::Wait(mark) => {
                    let before = self.work(|w| w.stream == mark.stream && w.n <= mark.n);
                    let later = self.work(|w| w.stream == at.stream && w.n > at.n);
                    runs.in_order(&before, &later)?;
                }
            }
        }
        Ok(())
    }

    fn work(&self, wanted: impl Fn(Mark) -> bool) -> Vec<Id> {
        let work = self.entries.iter().filter_map(|entry| match entry.what {
            What::Work { id, .. } if wanted(entry.at) => Some(id),
            _ => None,
        });
        work.collect()
    }

    /// Checks the reports, once all handles but those of stream 0 are gone.
    pub(crate) fn check_reports(&self, reports: &[Id]) -> Result<(), String> {
        let once: BTreeSet<Id> = reports.iter().copied().collect();
        if once.len() != reports.len() {
            return Err(format!("reported more than once: {reports:?}"));
        }
        let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
        for (stream, row) in self.rows.iter().enumerate().skip(1) {
            if let Some(origin) = self.failure(self.mark(stream)) {
                match self.acknowledged.iter().position(|&other| other == origin) {
                    None => must.insert(origin),
                    // Whichever came first, the report or the acknowledgement.
                    Some(place) if row.orphaned <= Some(place) => may.insert(origin),
                    Some(_) => false,
                };
            }
        }
        if !must.is_subset(&once) || !once.iter().all(|id| must.contains(id) || may.contains(id)) {
            return Err(format!(
                "reported {once:?}, but must be {must:?}, may be {may:?}"
            ));
        }
        Ok(())
    }
}

fn covered(failures: &BTreeMap<(usize, usize), (usize, Id)>, mark: Mark) -> Option<Id> {
    let &(n, origin) = failures.get(&(mark.stream, mark.epoch))?;
    (n <= mark.n).then_some(origin)
}
