//! Random programs over buffers: bytes and failures must be what the promises say.
//!
//! * [`ordered`]: one to three threads whose calls take effect in one known order, so the
//!   [`model`] knows every byte and every failure.
//! * [`racing`]: threads that call freely. What must hold in every order is checked.
//!
//! A failing program is shrunk. Each run prints its seed; `CLIKA_SEED` repeats it, and
//! `CLIKA_SOAK=1` runs many more programs.

mod model;
mod ordered;
mod racing;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clika_runtime::Error;
use clika_runtime::foreign::{self, Binding, Failure};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::watchdog;

/// A failure that was planned: no two have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id(u64);

impl Id {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The failure that a message speaks of.
    fn in_text(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("planned failure ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().map(Self)
    }

    /// The failure that an error is, or names as its cause.
    fn in_error(error: &Error) -> Option<Self> {
        let source = std::error::Error::source(error).map(ToString::to_string);
        Self::in_text(&error.to_string()).or_else(|| Self::in_text(&source?))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "planned failure {};", self.0)
    }
}

/// Keeps planned failures off the screen.
fn hush() {
    foreign::bind(Binding {
        reporter: || Box::new(|_: &Arc<Failure>| ()),
        recruiter: || Ok(()),
    });
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str().and_then(Id::in_text).is_none() {
            usual(info);
        }
    }));
}

/// Checks `run` with many programs.
fn check<P: fmt::Debug>(
    programs: u32,
    any: impl Strategy<Value = P>,
    run: impl Fn(&P) -> Result<(), TestCaseError>,
) {
    hush();
    let soak = std::env::var("CLIKA_SOAK").is_ok_and(|soak| soak == "1");
    let seed = seed();
    println!("CLIKA_SEED={seed} repeats these programs");
    let mut runner = TestRunner::new(Config {
        cases: programs * if soak { 50 } else { 1 },
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..Config::default()
    });
    let outcome = runner.run(&any, |program| {
        let text = Arc::new(format!("seed {seed}: {program:#?}"));
        let _watchdog = watchdog::watch_over(watchdog::LIMIT, move || text.to_string());
        run(&program)
    });
    if let Err(error) = outcome {
        // Not in the panic, which would be taken for a planned one.
        println!("{error}");
        panic!("a program failed, with CLIKA_SEED={seed}");
    }
}

fn seed() -> u64 {
    let given = std::env::var("CLIKA_SEED")
        .ok()
        .map(|text| text.parse().unwrap());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) ^ now.as_secs() << 20
    })
}
