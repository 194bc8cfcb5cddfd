//! Tests of the inside: models of the protocols.

#[cfg(shuttle)]
mod shuttle_hazard;
