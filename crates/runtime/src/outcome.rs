//! What submitted functions may return.

use std::error::Error;
use std::sync::Arc;

use clika_executor::Reason;

/// What a submitted function returns: nothing, or a `Result` whose error fails the stream.
#[diagnostic::on_unimplemented(
    message = "submitted work cannot return `{Self}`",
    label = "returns `{Self}`",
    note = "it returns nothing, or a `Result<(), E>` whose error fails the stream",
    note = "for work with a value there is `call`"
)]
pub trait Outcome {
    #[doc(hidden)]
    fn into_result(self) -> Result<(), Reason>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), Reason> {
        Ok(())
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), Reason> {
        self.map_err(|error| Reason::Returned(Arc::from(error.into())))
    }
}
