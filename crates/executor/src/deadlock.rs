//! Waits made inside operations, and the walk that finds the ones that could never end.
//!
//! An operation depends on everything before it on its strand, on the points that the strand's
//! wait records name, and, while it runs, on what it waits for itself. The first two are fixed when
//! they are submitted and point to what was submitted earlier, so only a wait from inside an
//! operation can close a cycle. Each such wait is an [`Edge`] in one table; before it is added, the
//! walk follows all three kinds of dependency from its target. If they lead back to an operation
//! that the waiting thread is inside of, the wait is refused.
//!
//! The table's lock is taken only by waits inside operations, before any other lock.

use std::collections::HashMap;
use std::sync::Arc;

use crate::executor::Shared;
use crate::frames::{self, Frame};
use crate::point::{Deadlock, Position};

/// The waits that are under way inside operations.
#[derive(Default)]
pub(crate) struct Table {
    edges: HashMap<u64, (Vec<Frame>, Position)>,
    serial: u64,
}

/// One wait in the table, until it is dropped.
pub(crate) struct Edge {
    shared: Arc<Shared>,
    serial: u64,
}

impl Edge {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        let edge = self.shared.deadlock.lock().edges.remove(&self.serial);
        drop(edge);
    }
}

/// Adds a wait for `target` by the calling thread, unless it could never end.
pub(crate) fn enter(target: &Position) -> Result<Edge, Deadlock> {
    let shared = &target.strand().shared;
    let frames = frames::all();
    let mut table = shared.deadlock.lock();
    if table.leads_back(target, &frames) {
        return Err(Deadlock);
    }
    table.serial += 1;
    let serial = table.serial;
    table.edges.insert(serial, (frames, target.clone()));
    Ok(Edge {
        shared: shared.clone(),
        serial,
    })
}

impl Table {
    /// Whether `target` depends on one of `frames`.
    fn leads_back(&self, target: &Position, frames: &[Frame]) -> bool {
        let mut seen = HashMap::<u64, u64>::new();
        let mut open = vec![target.clone()];
        while let Some(point) = open.pop() {
            let (strand, n) = (point.strand().id(), point.n());
            if point.is_reached() || seen.get(&strand).is_some_and(|&seen| seen >= n) {
                continue;
            }
            seen.insert(strand, n);
            if frames
                .iter()
                .any(|frame| frame.strand == strand && frame.n <= n)
            {
                return true;
            }
            point.strand().awaited_before(n, &mut open);
            let inner = self.edges.values().filter(|(frames, _)| {
                frames
                    .iter()
                    .any(|frame| frame.strand == strand && frame.n <= n)
            });
            open.extend(inner.map(|(_, target)| target.clone()));
        }
        false
    }
}
