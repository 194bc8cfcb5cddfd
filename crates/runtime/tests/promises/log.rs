//! What happened, in the order in which it happened.

use std::sync::Arc;

use clika_executor::sync::Mutex;
use clika_runtime::Stream;

/// A list that any work may add to.
#[derive(Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + 'static> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn add(&self, entry: T) {
        self.0.lock().push(entry);
    }

    /// Takes all entries out.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock())
    }

    /// Submits work that adds `entry`.
    #[track_caller]
    pub(crate) fn note(&self, stream: &Stream, entry: T) {
        self.try_note(stream, entry).unwrap();
    }

    /// Submits work that adds `entry`, where that may be refused.
    #[track_caller]
    pub(crate) fn try_note(&self, stream: &Stream, entry: T) -> Result<(), clika_runtime::Error> {
        let log = self.clone();
        stream.submit(move || log.add(entry))
    }
}
