//! The outer form of a trace file: where each event begins and ends.
//!
//! A trace is a JSON array of events, or an object whose `traceEvents` is that array. The process
//! that wrote it may have died at any byte; what is whole up to there is read.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The text of every whole event.
#[derive(Debug, Default)]
pub(crate) struct Events<'a> {
    pub(crate) texts: Vec<&'a str>,
    /// Whether the file ends before the trace does.
    pub(crate) cut_off: bool,
}

/// Why a text is no trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// There is nothing in it.
    Empty,
    /// It breaks the rules of JSON in that line.
    NotJson { line: usize, reason: String },
    /// It is JSON of another form.
    NoEvents,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::NotJson { line, reason } => write!(f, "line {line} is not JSON: {reason}"),
            Self::NoEvents => {
                f.write_str("it is neither a list of events nor an object with \"traceEvents\"")
            }
        }
    }
}

/// Finds the events in the text of a trace file.
pub(crate) fn split(text: &str) -> Result<Events<'_>, Problem> {
    // A file system that lost power may pad a file with zeros.
    let text = text.trim_start_matches('\u{feff}').trim_end_matches('\0');
    let mut reader = Reader { text, at: 0 };
    let mut events = Events::default();
    let ended = match reader.peek() {
        None => return Err(Problem::Empty),
        Some('[') => reader.list(&mut events.texts),
        Some('{') => reader.object(&mut events.texts),
        Some(_) => return Err(Problem::NoEvents),
    };
    match ended {
        Ok(()) => Ok(events),
        Err(End::CutOff) => {
            events.cut_off = true;
            Ok(events)
        }
        Err(End::Problem(problem)) => Err(problem),
    }
}

/// Why reading stopped before the end of the trace.
enum End {
    CutOff,
    Problem(Problem),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next character that is no white space, which it moves to.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        self.at += rest.len() - rest.trim_start_matches(blank).len();
        self.text[self.at..].chars().next()
    }

    /// Takes that character if it comes next.
    fn take(&mut self, wanted: char) -> Result<(), End> {
        match self.peek() {
            None => Err(End::CutOff),
            Some(next) if next == wanted => {
                self.at += wanted.len_utf8();
                Ok(())
            }
            Some(next) => Err(self.problem(0, format!("{next:?} where {wanted:?} should be"))),
        }
    }

    /// Takes the next value, whatever it is.
    fn value(&mut self) -> Result<&'a str, End> {
        if self.peek().is_none() {
            return Err(End::CutOff);
        }
        let mut json = serde_json::Deserializer::from_str(&self.text[self.at..]);
        match <&RawValue>::deserialize(&mut json) {
            Ok(value) => {
                self.at += value.get().len();
                Ok(value.get())
            }
            Err(error) if error.is_eof() || self.is_at_end(&error) => Err(End::CutOff),
            Err(error) => {
                let reason = error.to_string();
                let place = format!(" at line {} column {}", error.line(), error.column());
                let reason = reason.strip_suffix(&place).unwrap_or(&reason);
                Err(self.problem(error.line().saturating_sub(1), reason.to_owned()))
            }
        }
    }

    /// Takes a list. Commas too many do no harm: programs that write line by line leave one behind.
    fn list(&mut self, items: &mut Vec<&'a str>) -> Result<(), End> {
        self.take('[')?;
        loop {
            match self.peek() {
                Some(']') => return self.take(']'),
                Some(',') => self.take(',')?,
                _ => items.push(self.value()?),
            }
        }
    }

    /// Takes the list `traceEvents` of an object.
    fn object(&mut self, events: &mut Vec<&'a str>) -> Result<(), End> {
        self.take('{')?;
        loop {
            if self.peek() == Some('}') {
                return Err(End::Problem(Problem::NoEvents));
            }
            let key = self.value()?;
            self.take(':')?;
            if key == "\"traceEvents\"" {
                return match self.peek() {
                    None => Err(End::CutOff),
                    Some('[') => self.list(events),
                    Some(_) => Err(End::Problem(Problem::NoEvents)),
                };
            }
            self.value()?;
            if self.peek() != Some('}') {
                self.take(',')?;
            }
        }
    }

    /// Whether the fault is that the text ends: "-" and "1e" are called invalid numbers.
    fn is_at_end(&self, error: &serde_json::Error) -> bool {
        let rest = &self.text[self.at..];
        let last_line = rest.rsplit('\n').next().unwrap_or(rest);
        error.line() == rest.matches('\n').count() + 1 && error.column() >= last_line.len()
    }

    fn problem(&self, lines_on: usize, reason: String) -> End {
        let before = self.text[..self.at].matches('\n').count();
        End::Problem(Problem::NotJson {
            line: before + lines_on + 1,
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> (Vec<&str>, bool) {
        let events = split(text).unwrap();
        (events.texts, events.cut_off)
    }

    #[test]
    fn a_whole_list_is_not_cut_off() {
        assert_eq!(texts("[]"), (vec![], false));
        assert_eq!(texts("[{}]"), (vec!["{}"], false));
        assert_eq!(
            texts("\u{feff}[\n{\"a\": \"]\"},\n{}\n]\n"),
            (vec!["{\"a\": \"]\"}", "{}"], false)
        );
    }

    #[test]
    fn every_cut_keeps_what_is_whole() {
        let whole = "[\n{\"a\":[1.5,\"é\\u00e9\\\"\"]},\n{\"b\":true},\n{\"c\":-1e5}\n]";
        let ends: Vec<usize> = ["},\n{\"b", "},\n{\"c", "}\n]"]
            .iter()
            .map(|end| whole.find(end).unwrap() + 1)
            .collect();
        for cut in 1..whole.len() {
            let bytes = String::from_utf8_lossy(&whole.as_bytes()[..cut]);
            let events = split(&bytes).unwrap();
            let expected = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(events.texts.len(), expected, "{bytes}");
            assert!(events.cut_off, "{bytes}");
        }
    }

    #[test]
    fn a_comma_at_the_end_and_zeros_are_harmless() {
        assert_eq!(texts("[{},\n]"), (vec!["{}"], false));
        assert_eq!(texts("[{},\n"), (vec!["{}"], true));
        assert_eq!(texts("[{},{\"a\0\0\0"), (vec!["{}"], true));
    }

    #[test]
    fn the_object_form_is_read() {
        let text =
            r#"{"displayTimeUnit":"ns","x":{"traceEvents":[1]},"traceEvents":[{}, {}],"y":0}"#;
        assert_eq!(texts(text), (vec!["{}", "{}"], false));
        assert_eq!(texts(r#"{"traceEvents":[{},{"a"#), (vec!["{}"], true));
        assert_eq!(texts(r#"{"traceEv"#), (vec![], true));
        assert_eq!(texts(r#"{"traceEvents":"#), (vec![], true));
    }

    #[test]
    fn what_is_no_trace_is_told() {
        for text in ["", "  \n", "\u{feff}"] {
            assert_eq!(split(text).unwrap_err(), Problem::Empty);
        }
        for text in [
            "12",
            "\"[]\"",
            "{}",
            "{\"a\":1}",
            "{\"traceEvents\":{}}",
            "<html>",
        ] {
            assert_eq!(split(text).unwrap_err(), Problem::NoEvents, "{text}");
        }
    }

    #[test]
    fn a_fault_in_the_middle_names_its_line() {
        for (text, wanted) in [
            ("[\n{},\n{\"a\" 1},\n{}]", 3),
            ("[{}\n,nothing]", 2),
            ("{\"a\":1\n\"b\":2}", 2),
        ] {
            match split(text).unwrap_err() {
                Problem::NotJson { line, .. } => assert_eq!(line, wanted, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn deep_nesting_is_no_danger() {
        let deep = format!("[{}{}]", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(texts(&deep).0.len(), 1);
    }
}
