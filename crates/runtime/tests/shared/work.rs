//! The work of random programs, and the failures that are planned for it.

use std::fmt;
use std::hint::black_box;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use clika_runtime::Error;
use proptest::prelude::{Just, prop_oneof};
use proptest::strategy::Strategy;

/// An operation: no two of any program have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(u64);

impl Id {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The operation that a message speaks of.
    pub(crate) fn in_text(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("planned failure ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().map(Self)
    }

    /// The operation whose failure an error is, or names as its cause.
    pub(crate) fn in_error(error: &Error) -> Option<Self> {
        let source = std::error::Error::source(error).map(ToString::to_string);
        Self::in_text(&error.to_string()).or_else(|| Self::in_text(&source?))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "planned failure {};", self.0)
    }
}

/// How a piece of work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Well,
    WithAnError,
    WithAPanic,
}

/// What a piece of work is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) ends: Ends,
    pub(crate) host: bool,
    /// Rounds of doing nothing in particular, so that timings differ.
    length: u16,
}

impl Work {
    /// Takes the time that it takes. The value means nothing.
    pub(crate) fn spend_time(self) -> u16 {
        (0..self.length).fold(0, |sum, n| black_box(sum ^ n))
    }

    /// Ends as planned.
    pub(crate) fn end(self, id: Id) -> Result<(), String> {
        match self.ends {
            Ends::Well => Ok(()),
            Ends::WithAnError => Err(id.to_string()),
            Ends::WithAPanic => panic!("{id}"),
        }
    }
}

/// Work of which about one in `failing` fails.
pub(crate) fn any_work(failing: u32) -> impl Strategy<Value = Work> {
    let ends = prop_oneof![
        2 * failing - 2 => Just(Ends::Well),
        1 => Just(Ends::WithAnError),
        1 => Just(Ends::WithAPanic),
    ];
    let length = prop_oneof![3 => 0..10_u16, 1 => 0..5_000_u16];
    (ends, proptest::bool::weighted(0.2), length).prop_map(|(ends, host, length)| Work {
        ends,
        host,
        length,
    })
}

/// Keeps planned panics off the screen.
pub(crate) fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload_as_str().and_then(Id::in_text).is_none() {
                usual(info);
            }
        }));
    });
}
