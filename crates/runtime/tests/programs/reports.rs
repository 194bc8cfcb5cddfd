//! The failures that the runtime reported because nobody acknowledged them.

use std::sync::Once;

use clika_executor::sync::Mutex;
use clika_runtime::foreign::{self, Binding, Reporter};

use crate::work::{self, Id};

static REPORTED: Mutex<Vec<Id>> = Mutex::new(Vec::new());

/// Collects reports from here on, and keeps planned panics off the screen.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        foreign::bind(Binding {
            reporter,
            recruiter: || Ok(()),
        });
    });
    work::hush();
}

fn reporter() -> Reporter {
    Box::new(|failure| {
        let id = Id::in_text(&failure.to_string()).unwrap();
        REPORTED.lock().push(id);
    })
}

/// Waits until no work is left and takes the reports.
pub(crate) fn take() -> Vec<Id> {
    assert!(foreign::executor().unwrap().drain(None));
    std::mem::take(&mut REPORTED.lock())
}
