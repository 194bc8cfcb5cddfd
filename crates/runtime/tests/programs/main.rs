//! Random programs: what streams do must be what the promises say, whatever the program.
//!
//! * [`ordered`]: one to three threads whose calls take effect in one known order, so a sequential
//!   model knows every result: what runs, what is skipped, what each wait returns, which failures
//!   are reported.
//! * [`racing`]: two or three threads that call freely. What must hold in every order is checked.
//!
//! A failing program is shrunk. Each run prints its seed; `CLIKA_SEED` repeats it, and
//! `CLIKA_SOAK=1` runs many more programs.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod journal;
mod model;
mod ordered;
mod racing;
mod reports;
#[path = "../promises/watchdog.rs"]
#[expect(dead_code, reason = "the tests of the promises use all of it")]
mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clika_executor::sync::Mutex;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// How a piece of work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    WithAnError,
    WithAPanic,
}

/// What a piece of work is like.
#[derive(Clone, Copy, Debug)]
struct Work {
    ends: Ends,
    host: bool,
    /// Rounds of doing nothing in particular, so that timings differ.
    length: u16,
}

/// Work of which about one in `failing` fails.
fn any_work(failing: u32) -> impl Strategy<Value = Work> {
    let ends = proptest::prop_oneof![
        2 * failing - 2 => proptest::strategy::Just(Ends::Well),
        1 => proptest::strategy::Just(Ends::WithAnError),
        1 => proptest::strategy::Just(Ends::WithAPanic),
    ];
    let length = proptest::prop_oneof![3 => 0..10_u16, 1 => 0..5_000_u16];
    (ends, proptest::bool::weighted(0.2), length).prop_map(|(ends, host, length)| Work {
        ends,
        host,
        length,
    })
}

/// Checks `run` with many programs. It gets each with a number that no other run has.
fn check<P: fmt::Debug>(
    programs: u32,
    any: impl Strategy<Value = P>,
    run: impl Fn(&P) -> Result<(), TestCaseError>,
) {
    // The default stream and the reports are one for the whole process.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let soak = if std::env::var("CLIKA_SOAK").is_ok_and(|soak| soak == "1") {
        50
    } else {
        1
    };
    let seed = seed();
    println!("CLIKA_SEED={seed} repeats these programs");
    let mut runner = TestRunner::new(Config {
        cases: programs * soak,
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
        panic!("with CLIKA_SEED={seed}: {error}");
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
