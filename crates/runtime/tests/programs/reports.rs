//! The failures that the runtime reported because nobody acknowledged them.

use std::sync::Once;

use clika_executor::sync::Mutex;
use clika_runtime::foreign::{self, Binding, Reporter};

use crate::journal::Id;

static REPORTED: Mutex<Vec<Id>> = Mutex::new(Vec::new());

/// Collects reports from here on, and keeps planned panics off the screen.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        foreign::bind(Binding {
            reporter,
            recruiter: || Ok(()),
        });
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info
                .payload_as_str()
                .is_none_or(|text| Id::in_text(text).is_none())
            {
                usual(info);
            }
        }));
    });
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
