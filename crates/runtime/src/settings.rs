//! What the environment may set: how many threads there are, and how long an exit may take.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use crate::cpu;
use crate::error::{Error, quoted};

/// More threads than this is a typo: Linux gives out this many thread ids by default.
const MOST_THREADS: usize = 32_768;

/// More seconds than this (31 years) is a typo, and the sum with any time of day stays
/// representable.
const LONGEST_EXIT: f64 = 1e9;

/// The settings of one generation of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `CLIKA_WORKERS`: threads that run native work; by default the cores that this process may
    /// use.
    pub(crate) workers: usize,
    /// `CLIKA_HOST_THREADS`: to how many threads the host lane may grow; 512 by default.
    pub(crate) host_threads: usize,
    /// `CLIKA_EXIT_TIMEOUT`, in seconds: how long pending work may go on at exit; 5 by default.
    pub(crate) exit_timeout: Duration,
    /// `CLIKA_TRACE`: where a trace of all streams is written, if anywhere.
    pub(crate) trace: Option<PathBuf>,
}

impl Settings {
    /// Reads the environment. A bad value is an invalid argument, never the default.
    pub(crate) fn read() -> Result<Self, Error> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// The same from any table of variables, so that tests need not touch the environment.
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let variable = |name| Variable::look_up(name, &lookup);
        Ok(Self {
            workers: variable("CLIKA_WORKERS").threads(cpu::cores)?,
            host_threads: variable("CLIKA_HOST_THREADS").threads(|| 512)?,
            exit_timeout: variable("CLIKA_EXIT_TIMEOUT").seconds(5.0)?,
            trace: path("CLIKA_TRACE", lookup("CLIKA_TRACE"))?,
        })
    }
}

/// The file that a variable names.
fn path(name: &str, value: Option<OsString>) -> Result<Option<PathBuf>, Error> {
    if value.as_ref().is_some_and(|value| value.is_empty()) {
        return Err(Error::invalid_argument(format!(
            "the environment variable {name} is empty, but has to be the path of a file; or unset it"
        )));
    }
    let Some(path) = value.map(PathBuf::from) else {
        return Ok(None);
    };
    let opened = File::options().create(true).append(true).open(&path);
    opened.map_err(|error| {
        let path = quoted(&path.to_string_lossy());
        Error::invalid_argument(format!(
            "the environment variable {name} is {path}, which cannot be written: {error}"
        ))
    })?;
    Ok(Some(path))
}

/// An environment variable and what it is set to, if it is.
struct Variable {
    name: &'static str,
    text: Option<String>,
}

impl Variable {
    fn look_up(name: &'static str, lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        // A value that is not Unicode is no number either: its lossy form serves for the message.
        let text = lookup(name).map(|value| value.to_string_lossy().into_owned());
        Self { name, text }
    }

    fn threads(&self, default: impl FnOnce() -> usize) -> Result<usize, Error> {
        let Some(text) = &self.text else {
            return Ok(default());
        };
        text.parse()
            .ok()
            .filter(|count| (1..=MOST_THREADS).contains(count))
            .ok_or_else(|| self.refused(text, &format!("a whole number from 1 to {MOST_THREADS}")))
    }

    fn seconds(&self, default: f64) -> Result<Duration, Error> {
        let Some(text) = &self.text else {
            return Ok(Duration::from_secs_f64(default));
        };
        text.parse()
            .ok()
            .filter(|seconds| (0.0..=LONGEST_EXIT).contains(seconds))
            .map(Duration::from_secs_f64)
            .ok_or_else(|| self.refused(text, "a number of seconds from 0 to 1e9, such as 2.5"))
    }

    fn refused(&self, text: &str, allowed: &str) -> Error {
        let (name, text) = (self.name, quoted(text));
        Error::invalid_argument(format!(
            "the environment variable {name} is {text}, but has to be {allowed}; \
             or unset it for the default"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: impl Into<OsString>) -> Result<Settings, Error> {
        let value = value.into();
        Settings::from_lookup(|asked| (asked == name).then(|| value.clone()))
    }

    #[test]
    fn defaults_hold_where_nothing_is_set() {
        let settings = Settings::from_lookup(|_| None).unwrap();
        let expected = Settings {
            workers: cpu::cores(),
            host_threads: 512,
            exit_timeout: Duration::from_secs(5),
            trace: None,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn each_variable_sets_its_own_setting() {
        assert_eq!(with("CLIKA_WORKERS", "3").unwrap().workers, 3);
        let settings = with("CLIKA_HOST_THREADS", "32768").unwrap();
        assert_eq!(settings.host_threads, 32_768);
        for (text, millis) in [("0", 0), ("2.5", 2_500), ("1e3", 1_000_000), ("-0.0", 0)] {
            let settings = with("CLIKA_EXIT_TIMEOUT", text).unwrap();
            assert_eq!(
                settings.exit_timeout,
                Duration::from_millis(millis),
                "{text}"
            );
        }
        let longest = with("CLIKA_EXIT_TIMEOUT", "1e9").unwrap().exit_timeout;
        let end = std::time::Instant::now().checked_add(longest);
        assert!(end.is_some(), "the longest exit has an end");
    }

    #[test]
    fn a_bad_value_is_refused_by_name() {
        let counts = "|0|-1|1.5| 4|four|32769|99999999999999999999|0x4";
        let seconds = "|-1|-1e-9|nan|inf|-inf|1e10|1e400|5s| 5";
        let cases = [
            ("CLIKA_WORKERS", counts),
            ("CLIKA_HOST_THREADS", counts),
            ("CLIKA_EXIT_TIMEOUT", seconds),
        ];
        for (name, values) in cases {
            for value in values.split('|') {
                let message = refusal(with(name, value));
                assert!(
                    message.contains(name) && message.contains(&quoted(value)),
                    "{message}"
                );
                assert!(message.contains(" from "), "tells the range: {message}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_unicode_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let message = refusal(with("CLIKA_WORKERS", OsString::from_vec(vec![b'4', 0xff])));
        assert!(message.contains("CLIKA_WORKERS"), "{message}");
    }

    fn refusal(settings: Result<Settings, Error>) -> String {
        match settings {
            Err(error) if error.is_invalid_argument() => error.to_string(),
            other => panic!("an invalid argument was expected, not {other:?}"),
        }
    }
}
