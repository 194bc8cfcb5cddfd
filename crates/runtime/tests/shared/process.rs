//! A test in a process of its own, with an environment of its own.

use std::any::type_name;
use std::env;
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

use crate::watchdog::{watch, watch_process};

/// Tells the process which test it was started for.
const MARK: &str = "CLIKA_TEST_PROCESS";

/// What a test's process left behind.
pub(crate) struct Left {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Left {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let left = Self {
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        let (out, err) = (&left.stdout, &left.stderr);
        assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
        assert!(
            out.contains("1 passed"),
            "the process ran another test:\n{out}"
        );
        left
    }

    /// How often failures were reported that nobody acknowledged.
    pub(crate) fn reports(&self) -> usize {
        self.stderr.matches("nobody acknowledged").count()
    }
}

/// Runs `body` in a process of its own, with `settings` in its environment, which must succeed.
///
/// In that process this call runs `body` and returns `None`; in the first one, what it left. The
/// test is the function that `body` is written in.
pub(crate) fn alone<V: AsRef<OsStr>, F: FnOnce()>(settings: &[(&str, V)], body: F) -> Option<Left> {
    let test = test_of::<F>();
    if env::var(MARK).is_ok_and(|mark| mark == test) {
        let _watchdog = watch();
        body();
        return None;
    }
    let _watchdog = watch_process(test);
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(MARK, test);
    for (name, value) in settings {
        command.env(name, value);
    }
    Some(Left::of(command.stdin(Stdio::null()).output().unwrap()))
}

/// The name of the test that a closure is written in, from `crate::module::test::{{closure}}`.
fn test_of<F>() -> &'static str {
    let path = type_name::<F>();
    let (_, test) = path.split_once("::").unwrap();
    test.split("::{{").next().unwrap()
}

/// No settings but those of the test run.
pub(crate) const AS_IT_IS: &[(&str, &str)] = &[];
