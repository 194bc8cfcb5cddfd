//! Rust functions as operations.

use std::marker::PhantomData;
use std::panic::Location;

use crate::failure::{Fault, Reason, contain};
use crate::operation::{Kind, Operation};
use crate::trace::Description;

/// A function for a native worker, which it must not block.
pub struct Native<F, N = F>(Call<F, N>);

/// A function that may block, for the host lane.
pub struct Host<F, N = F>(Call<F, N>);

/// The runtime's own brief function: harmless on any thread, and run also behind a failure.
pub struct Mark<F>(F);

/// A function that bears the name of an `N`: that of the user's own function, where `F` is made of it.
struct Call<F, N> {
    function: F,
    named: PhantomData<fn() -> N>,
    site: Option<&'static Location<'static>>,
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static> Native<F> {
    /// `function`, submitted at `site`. An error or a panic fails the strand.
    pub fn new(function: F, site: Option<&'static Location<'static>>) -> Self {
        Self::named(function, PhantomData, site)
    }
}

impl<F, N> Native<F, N> {
    /// As [`new`](Native::new), with the name of an `N` in a trace.
    pub fn named(
        function: F,
        named: PhantomData<fn() -> N>,
        site: Option<&'static Location<'static>>,
    ) -> Self {
        Self(Call {
            function,
            named,
            site,
        })
    }
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static> Host<F> {
    /// `function`, submitted at `site`. An error or a panic fails the strand.
    pub fn new(function: F, site: Option<&'static Location<'static>>) -> Self {
        Self::named(function, PhantomData, site)
    }
}

impl<F, N> Host<F, N> {
    /// As [`new`](Host::new), with the name of an `N` in a trace.
    pub fn named(
        function: F,
        named: PhantomData<fn() -> N>,
        site: Option<&'static Location<'static>>,
    ) -> Self {
        Self(Call {
            function,
            named,
            site,
        })
    }
}

impl<F: FnOnce() + Send + 'static> Mark<F> {
    /// `function`, which must be brief. A panic ends there and fails nothing.
    pub fn new(function: F) -> Self {
        Self(function)
    }
}

impl<F: FnOnce() -> Result<(), Reason>, N> Call<F, N> {
    #[inline]
    fn run(self) -> Result<(), Fault> {
        Fault::catch(self.site, self.function)
    }

    fn describe(&self, kind: Kind) -> Description {
        Description {
            name: std::any::type_name::<N>().into(),
            site: self.site.into(),
            ..Description::of_kind(kind)
        }
    }
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static, N: 'static> Operation for Native<F, N> {
    const KIND: Kind = Kind::Native;

    #[inline]
    fn run(self) -> Result<(), Fault> {
        self.0.run()
    }

    fn describe(&self) -> Description {
        self.0.describe(Self::KIND)
    }
}

impl<F: FnOnce() -> Result<(), Reason> + Send + 'static, N: 'static> Operation for Host<F, N> {
    const KIND: Kind = Kind::Host;

    fn run(self) -> Result<(), Fault> {
        self.0.run()
    }

    fn describe(&self) -> Description {
        self.0.describe(Self::KIND)
    }
}

impl<F: FnOnce() + Send + 'static> Operation for Mark<F> {
    const KIND: Kind = Kind::Mark;

    fn run(self) -> Result<(), Fault> {
        contain(self.0);
        Ok(())
    }
}
