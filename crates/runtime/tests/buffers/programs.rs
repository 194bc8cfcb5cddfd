//! Random programs over buffers: bytes and failures must be what the promises say.
//!
//! * [`ordered`]: one to three threads whose calls take effect in one known order, so the
//!   [`model`] knows every byte and every failure.
//! * [`racing`]: threads that call freely. What must hold in every order is checked.
//!
//! [`check`] says how a failing program is repeated.

mod model;
mod ordered;
mod racing;

use std::sync::Arc;

use clika_runtime::foreign::{self, Binding, Failure};

use crate::work;

/// Keeps planned failures off the screen.
fn hush() {
    foreign::bind(Binding {
        reporter: || Box::new(|_: &Arc<Failure>| ()),
        recruiter: || Ok(()),
    });
    work::hush();
}
