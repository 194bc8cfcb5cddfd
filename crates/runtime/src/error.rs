//! The one error type: opaque, one pointer wide, cheap to clone.
//!
//! What went wrong is told by the message; what a program may want to act on, by the `is_*`
//! questions.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// An error that another one was caused by. Shared, since one failure may reach many waiters.
pub(crate) type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// What can go wrong when devices, streams, events and futures are used.
///
/// The message says what was wrong, what was given, and what to do instead.
/// [`source`](std::error::Error::source) leads to the cause: for work that failed, to the error
/// that it returned; for work that was skipped, to the failure that came first. Clones share all of
/// it.
///
/// # Examples
///
/// ```
/// use clika_runtime::Device;
///
/// let error = "cpu:7".parse::<Device>().unwrap_err();
/// assert!(error.is_invalid_argument());
/// assert!(error.to_string().contains("cpu:0"), "it lists what this machine has");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: Kind,
    message: Cow<'static, str>,
    cause: Option<Cause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    InvalidArgument,
    Unsupported,
    OutOfMemory,
    Device,
    Cancelled,
    Deadlock,
    Timeout,
    Operation,
}

impl Error {
    /// A value that the call does not take.
    pub(crate) fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::InvalidArgument, message, None)
    }

    /// A wish that this device cannot fulfil.
    pub(crate) fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported, message, None)
    }

    /// Memory ran out.
    pub(crate) fn out_of_memory(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::OutOfMemory, message, None)
    }

    /// The device, its driver or the runtime itself cannot go on.
    pub(crate) fn device(message: impl Into<Cow<'static, str>>, cause: Option<Cause>) -> Self {
        Self::new(Kind::Device, message, cause)
    }

    /// Work was skipped: because of the failure given as cause, or, without one, because its user
    /// cancelled it.
    pub(crate) fn cancelled(message: impl Into<Cow<'static, str>>, cause: Option<Cause>) -> Self {
        Self::new(Kind::Cancelled, message, cause)
    }

    /// A wait that could never end.
    pub(crate) fn deadlock(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Deadlock, message, None)
    }

    /// A wait that reached its time limit.
    pub(crate) fn timeout(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Timeout, message, None)
    }

    /// Work failed: the cause is the error that it returned; a panic has none, its message is part
    /// of this one.
    pub(crate) fn operation(message: impl Into<Cow<'static, str>>, cause: Option<Cause>) -> Self {
        Self::new(Kind::Operation, message, cause)
    }

    /// The same, as what an operation failed with.
    pub(crate) fn in_operation(&self, message: String) -> Self {
        Self::new(self.0.kind, message, Some(Arc::new(self.clone())))
    }

    fn new(kind: Kind, message: impl Into<Cow<'static, str>>, cause: Option<Cause>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            cause,
        }))
    }

    /// Whether a value was given that the call does not take.
    pub fn is_invalid_argument(&self) -> bool {
        self.is(Kind::InvalidArgument)
    }

    /// Whether this device cannot do what was asked, though another kind of device might.
    pub fn is_unsupported(&self) -> bool {
        self.is(Kind::Unsupported)
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        self.is(Kind::OutOfMemory)
    }

    /// Whether the device is not usable: its driver failed, it was lost, or it belongs to another
    /// process.
    pub fn is_device(&self) -> bool {
        self.is(Kind::Device)
    }

    /// Whether work was skipped because earlier work failed, or because it was cancelled.
    ///
    /// In the first case [`source`](std::error::Error::source) is the earlier failure.
    pub fn is_cancelled(&self) -> bool {
        self.is(Kind::Cancelled)
    }

    /// Whether a wait was refused because it could never have ended.
    pub fn is_deadlock(&self) -> bool {
        self.is(Kind::Deadlock)
    }

    /// Whether a wait reached its time limit. What was waited for goes on.
    pub fn is_timeout(&self) -> bool {
        self.is(Kind::Timeout)
    }

    /// Whether submitted work returned an error or panicked.
    ///
    /// [`source`](std::error::Error::source) is the error that it returned.
    pub fn is_operation(&self) -> bool {
        self.is(Kind::Operation)
    }

    fn is(&self, kind: Kind) -> bool {
        self.0.kind == kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_tuple("Error");
        out.field(&self.0.kind).field(&self.0.message);
        if let Some(cause) = &self.0.cause {
            out.field(cause);
        }
        out.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_deref()?;
        Some(cause)
    }
}

/// A text given by a user, fit for a message: quoted, escaped, and cut where it is too long to
/// read.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    type Question = fn(&Error) -> bool;

    #[test]
    fn each_kind_answers_exactly_its_own_question() {
        let questions: [Question; 8] = [
            Error::is_invalid_argument,
            Error::is_unsupported,
            Error::is_out_of_memory,
            Error::is_device,
            Error::is_cancelled,
            Error::is_deadlock,
            Error::is_timeout,
            Error::is_operation,
        ];
        let errors = [
            Error::invalid_argument("m"),
            Error::unsupported("m"),
            Error::out_of_memory("m"),
            Error::device("m", None),
            Error::cancelled("m", None),
            Error::deadlock("m"),
            Error::timeout("m"),
            Error::operation("m", None),
        ];
        for (i, error) in errors.iter().enumerate() {
            for (j, question) in questions.iter().enumerate() {
                assert_eq!(question(error), i == j, "{error:?}, question {j}");
            }
        }
    }

    #[test]
    fn it_is_one_pointer_and_may_go_to_any_thread() {
        fn any_thread<T: Send + Sync + Clone + 'static>() {}
        any_thread::<Error>();
        assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
    }

    #[test]
    fn causes_chain_and_keep_their_type() {
        let returned: Cause = Arc::new(std::fmt::Error);
        let first = Error::operation("decode failed", Some(returned));
        let skipped = Error::cancelled("resize was skipped", Some(Arc::new(first.clone())));

        let cause = skipped.source().and_then(|c| c.downcast_ref::<Error>());
        assert!(cause.is_some_and(|c| Arc::ptr_eq(&c.0, &first.0)));
        assert!(first.source().is_some_and(|c| c.is::<std::fmt::Error>()));
        assert!(Error::timeout("late").source().is_none());
    }

    #[test]
    fn display_is_the_message_and_debug_shows_the_causes() {
        let error = Error::operation("decode failed", Some(Arc::new(std::fmt::Error)));
        assert_eq!(error.to_string(), "decode failed");
        let debug = format!("{error:?}");
        assert_eq!(debug, r#"Error(Operation, "decode failed", Error)"#);
    }

    #[test]
    fn quoted_text_is_escaped_and_cut_between_characters() {
        assert_eq!(quoted("a\n"), r#""a\n""#);
        let longest = "é".repeat(40);
        assert_eq!(quoted(&longest), format!("{longest:?}"));
        assert_eq!(quoted(&format!("{longest}é")), format!("{longest:?}..."));
    }
}
