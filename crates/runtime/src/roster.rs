//! The streams that somebody holds, for whoever looks on.

use std::sync::{Arc, Weak};

use clika_executor::sync::Mutex;

/// A list of things that leave it by the number they got when they came.
pub(crate) struct Roster<T>(Mutex<Places<T>>);

struct Places<T> {
    /// `None`: free.
    all: Vec<Option<Weak<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        let (all, free) = (Vec::new(), Vec::new());
        Self(Mutex::new(Places { all, free }))
    }
}

impl<T> Roster<T> {
    /// Adds what `make` makes of its number.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> T) -> Arc<T> {
        let mut places = self.0.lock();
        let at = places.free.pop().unwrap_or_else(|| places.extend());
        let thing = Arc::new(make(at));
        places.all[at as usize] = Some(Arc::downgrade(&thing));
        thing
    }

    /// Takes number `at` off the list.
    pub(crate) fn remove(&self, at: u32) {
        let mut places = self.0.lock();
        places.all[at as usize] = None;
        places.free.push(at);
    }

    /// All that are there, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let places = self.0.lock();
        let all = places.all.iter().flatten();
        all.filter_map(Weak::upgrade).collect()
    }
}

impl<T> Places<T> {
    fn extend(&mut self) -> u32 {
        let at = u32::try_from(self.all.len());
        let at = at.unwrap_or_else(|_| unreachable!("memory holds fewer streams than that"));
        self.all.push(None);
        at
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_again() {
        let roster = Roster::default();
        let all = |roster: &Roster<u32>| roster.all().iter().map(|at| **at).collect::<Vec<_>>();
        let things: Vec<_> = (0..4).map(|_| roster.add(|at| at)).collect();
        assert_eq!(all(&roster), [0, 1, 2, 3]);
        roster.remove(1);
        roster.remove(2);
        assert_eq!(all(&roster), [0, 3]);
        assert_eq!(*roster.add(|at| at), 2);
        drop(things);
        assert!(roster.all().is_empty(), "what is gone is not told");
    }
}
