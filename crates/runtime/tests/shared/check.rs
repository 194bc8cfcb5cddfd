//! Checks with random programs. A failing one is shrunk. Each run prints its seed; `CLIKA_SEED`
//! repeats it, and `CLIKA_SOAK=1` runs many more programs.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::watchdog;

/// Checks `run` with many programs.
pub(crate) fn check<P: fmt::Debug>(
    programs: u32,
    any: impl Strategy<Value = P>,
    run: impl Fn(&P) -> Result<(), TestCaseError>,
) {
    // The default stream and the reports are one for the whole process.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
        let text = format!("seed {seed}: {program:#?}");
        let _watchdog = watchdog::watch_over(watchdog::LIMIT, move || text);
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
