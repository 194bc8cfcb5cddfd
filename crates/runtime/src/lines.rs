//! Lines of JSON, written piece by piece into a file.
//!
//! A trace has a line for each operation, and whoever fills its log writes them while others wait. So what
//! each line has is written here without the detour of formatting, and without an allocation.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};

/// A file, and the lines that are to be written to it.
pub(crate) struct Lines {
    file: File,
    text: Vec<u8>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
}

impl Lines {
    /// What is gathered before it is written.
    const GATHERED: usize = 1 << 16;

    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            text: Vec::with_capacity(Self::GATHERED + Self::GATHERED / 8),
            error: None,
        }
    }

    /// A piece of JSON as it stands.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.text.extend_from_slice(text.as_bytes());
        self
    }

    pub(crate) fn number(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = digit(number);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text.extend_from_slice(&digits[at..]);
        self
    }

    /// Nanoseconds as microseconds.
    pub(crate) fn micros(&mut self, nanoseconds: u64) -> &mut Self {
        let rest = nanoseconds % 1000;
        self.number(nanoseconds / 1000);
        let rest = [b'.', digit(rest / 100), digit(rest / 10), digit(rest)];
        self.text.extend_from_slice(&rest);
        self
    }

    /// A text in quotes.
    pub(crate) fn quoted(&mut self, text: &str) -> &mut Self {
        self.raw("\"").escaped(text).raw("\"")
    }

    /// A part of a text in quotes.
    pub(crate) fn escaped(&mut self, text: &str) -> &mut Self {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if text.bytes().all(is_plain) {
            return self.raw(text);
        }
        // A vector takes whatever is written; what is quoted here ends with quotes, which are ASCII.
        let begin = self.text.len();
        let _ = serde_json::to_writer(&mut self.text, text);
        self.text.remove(begin);
        self.text.pop();
        self
    }

    pub(crate) fn formatted(&mut self, text: fmt::Arguments<'_>) -> &mut Self {
        let _ = self.text.write_fmt(text);
        self
    }

    /// Ends a line. Whole lines are written, whenever enough is there.
    pub(crate) fn end(&mut self) {
        self.raw("\n");
        if self.text.len() >= Self::GATHERED {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.file.write_all(&self.text).err();
        }
        self.text.clear();
    }

    /// The first error since the file was opened.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The first error since the file was opened.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush();
        self.error.map_or(Ok(()), Err)
    }
}

/// The last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Lines)) -> String {
        let mut lines = Lines::new(File::open("/dev/null").unwrap());
        write(&mut lines);
        String::from_utf8(lines.text).unwrap()
    }

    #[test]
    fn numbers_are_as_formatted() {
        let powers = (0..64).flat_map(|bits| [1 << bits, (1 << bits) - 1]);
        for number in powers.chain([10, 100, 999, 1000, 1001, u64::MAX]) {
            let text = written(|lines| _ = lines.number(number));
            assert_eq!(text, number.to_string());
            let text = written(|lines| _ = lines.micros(number));
            assert_eq!(text, format!("{}.{:03}", number / 1000, number % 1000));
        }
    }

    #[test]
    fn texts_are_as_json_has_them() {
        let texts = [
            "",
            "plain",
            "größer ✓",
            "\"",
            "\\",
            "a\nb\t\u{0}\u{1f}\u{7f}",
            "\u{2028}",
        ];
        for text in texts {
            let quoted = written(|lines| _ = lines.quoted(text));
            assert_eq!(quoted, serde_json::to_string(text).unwrap());
            let joined = written(|lines| _ = lines.raw("\"<").escaped(text).raw(">\""));
            let back: String = serde_json::from_str(&joined).unwrap();
            assert_eq!(back, format!("<{text}>"));
        }
    }

    #[test]
    fn what_fails_first_is_told() {
        let mut lines = Lines::new(File::open("/dev/null").unwrap());
        lines.raw("to a file that can only be read").end();
        lines.flush();
        assert!(lines.finish().is_err());
    }
}
