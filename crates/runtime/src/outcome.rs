//! What submitted functions may return.

use std::error::Error;
use std::sync::Arc;

use clika_executor::Reason;

/// What a submitted function returns: nothing, or a `Result` whose error fails the stream.
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
