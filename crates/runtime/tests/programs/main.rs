//! Random programs: what streams do must be what the promises say, whatever the program.
//!
//! * [`ordered`]: one to three threads whose calls take effect in one known order, so a sequential
//!   model knows every result: what runs, what is skipped, what each wait returns, which failures
//!   are reported.
//! * [`traced`]: what the trace of such a program tells.
//! * [`racing`]: two or three threads that call freely. What must hold in every order is checked.
//!
//! [`check`] says how a failing program is repeated.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../shared/check.rs"]
mod check;
mod journal;
mod model;
mod ordered;
mod racing;
mod reports;
#[path = "../shared/stage.rs"]
mod stage;
mod traced;
#[path = "../shared/waiting.rs"]
#[expect(dead_code, reason = "the tests of the promises use all of it")]
mod waiting;
#[path = "../shared/watchdog.rs"]
#[expect(dead_code, reason = "the tests of the promises use all of it")]
mod watchdog;
#[path = "../shared/work.rs"]
mod work;
