//! Threads that may borrow, as those of `std::thread::scope`, but each is joined: to ThreadSanitizer,
//! which does not see into the standard library, only that says that it has ended.

use std::cell::RefCell;
use std::thread::{self, Scope, ScopedJoinHandle};

/// Where threads are spawned that are joined at the end.
pub(crate) struct Joined<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    handles: RefCell<Vec<ScopedJoinHandle<'scope, ()>>>,
}

impl<'scope> Joined<'scope, '_> {
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        self.handles.borrow_mut().push(self.scope.spawn(work));
    }
}

/// Runs `body`, and then waits for the threads that it has spawned.
#[track_caller]
pub(crate) fn joined<'env>(body: impl for<'scope> FnOnce(&Joined<'scope, 'env>)) {
    thread::scope(|scope| {
        let joined = Joined {
            scope,
            handles: RefCell::default(),
        };
        body(&joined);
        for handle in joined.handles.take() {
            handle.join().unwrap();
        }
    });
}
