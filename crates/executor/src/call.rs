//! Rust functions as operations.

use std::panic::Location;

use crate::failure::{Fault, Reason, contain};
use crate::operation::{Kind, Operation};

/// A function for a native worker, which it must not block.
pub struct Native<F>(Call<F>);

/// A function that may block, for the host lane.
pub struct Host<F>(Call<F>);

/// The runtime's own brief function: harmless on any thread, and run also behind a failure.
pub struct Mark<F>(F);

struct Call<F> {
    function: F,
    site: Option<&'static Location<'static>>,
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static> Native<F> {
    /// `function`, submitted at `site`. An error or a panic fails the strand.
    pub fn new(function: F, site: Option<&'static Location<'static>>) -> Self {
        Self(Call { function, site })
    }
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static> Host<F> {
    /// `function`, submitted at `site`. An error or a panic fails the strand.
    pub fn new(function: F, site: Option<&'static Location<'static>>) -> Self {
        Self(Call { function, site })
    }
}

impl<F: FnOnce() + Send + 'static> Mark<F> {
    /// `function`, which must be brief. A panic ends there and fails nothing.
    pub fn new(function: F) -> Self {
        Self(function)
    }
}

impl<F: FnOnce() -> Result<(), Reason>> Call<F> {
    #[inline]
    fn run(self) -> Result<(), Fault> {
        Fault::catch(self.site, self.function)
    }
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static> Operation for Native<F> {
    const KIND: Kind = Kind::Native;

    #[inline]
    fn run(self) -> Result<(), Fault> {
        self.0.run()
    }
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static> Operation for Host<F> {
    const KIND: Kind = Kind::Host;

    fn run(self) -> Result<(), Fault> {
        self.0.run()
    }
}

impl<F: FnOnce() + Send + 'static> Operation for Mark<F> {
    const KIND: Kind = Kind::Mark;

    fn run(self) -> Result<(), Fault> {
        contain(self.0);
        Ok(())
    }
}
