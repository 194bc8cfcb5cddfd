//! The work of a program, and the journal in which it notes that it ran.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use clika_executor::sync::Mutex;

use crate::work::{Id, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    End,
}

/// What ran, when and where.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<(Id, Moment, ThreadId)>>>);

impl Journal {
    /// The function that does `work` as operation `id` and notes it.
    pub(crate) fn operation(
        &self,
        id: Id,
        work: Work,
    ) -> impl FnOnce() -> Result<u16, String> + Send + 'static {
        let journal = self.clone();
        move || {
            journal.note(id, Moment::Start);
            let value = work.spend_time();
            journal.note(id, Moment::End);
            work.end(id).map(|()| value)
        }
    }

    fn note(&self, id: Id, moment: Moment) {
        let mut entries = self.0.lock();
        entries.push((id, moment, thread::current().id()));
    }

    /// What the journal says once all work is over. Fails if anything ran twice.
    pub(crate) fn read(&self) -> Result<Runs, String> {
        let mut runs = HashMap::<Id, Run>::new();
        let entries = self.0.lock();
        for (place, &(id, moment, thread)) in entries.iter().enumerate() {
            match moment {
                Moment::Start => {
                    let run = Run {
                        start: place,
                        end: usize::MAX,
                        thread,
                    };
                    if runs.insert(id, run).is_some() {
                        return Err(format!("{id:?} ran twice"));
                    }
                }
                Moment::End => runs.get_mut(&id).unwrap().end = place,
            }
        }
        Ok(Runs(runs))
    }
}

/// When and where an operation ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    start: usize,
    end: usize,
    pub(crate) thread: ThreadId,
}

/// All operations that ran.
pub(crate) struct Runs(HashMap<Id, Run>);

impl Runs {
    pub(crate) fn get(&self, id: Id) -> Option<Run> {
        self.0.get(&id).copied()
    }

    pub(crate) fn ran(&self, id: Id) -> bool {
        self.0.contains_key(&id)
    }

    pub(crate) fn has_ended(&self, id: Id) -> bool {
        self.get(id).is_some_and(|run| run.end != usize::MAX)
    }

    /// Checks that, of those that ran, each of `first` ended before each of `then` started.
    pub(crate) fn in_order(&self, first: &[Id], then: &[Id]) -> Result<(), String> {
        let last_end = first
            .iter()
            .filter_map(|&id| Some((self.get(id)?.end, id)))
            .max();
        let first_start = then
            .iter()
            .filter_map(|&id| Some((self.get(id)?.start, id)))
            .min();
        match (last_end, first_start) {
            (Some((end, before)), Some((start, after))) if end > start => {
                Err(format!("{after:?} started before {before:?} ended"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that those of a row that ran did so one after the other.
    pub(crate) fn in_a_row(&self, row: &[Id]) -> Result<(), String> {
        let ran: Vec<Id> = row.iter().copied().filter(|&id| self.ran(id)).collect();
        ran.windows(2)
            .try_for_each(|pair| self.in_order(&pair[..1], &pair[1..]))
    }
}
