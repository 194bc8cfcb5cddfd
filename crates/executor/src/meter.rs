//! What a strand has done so far, for whoever looks on. Nothing is decided by it.
//!
//! * The holder of the strand's turn writes the [`Meter`]. Its clock runs from the first operation of a
//!   turn until the turn leaves the thread, brief records aside, so that it is read twice in a turn and
//!   not for every operation. It moves in ticks of some milliseconds: a turn much shorter counts as
//!   nothing or, as often as is just, as a tick. So the sum is right in the long run, at a tenth of
//!   the price of a handover.
//! * Who submits keeps the [`Depth`], under the inbox's lock. The exact depth takes the timeline, which the
//!   other thread writes all the time; so it looks there only when the queue may have become deeper
//!   than ever before by more than a sixteenth.

// Not the model checkers': they would try every order of these too.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::process::coarse_clock;
use crate::timeline::Timeline;

/// What a strand has done so far.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Operations submitted, waits included.
    pub submitted: u64,
    /// Operations that have ended in any way.
    pub ended: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that were skipped, on account of an earlier failure or a shutdown.
    pub skipped: u64,
    /// Whether a thread is at its operations.
    pub is_running: bool,
    /// For how long threads were at its operations.
    pub busy: Duration,
    /// How many operations were pending at most.
    pub deepest: u64,
}

/// What the holders of a strand's turn have done.
#[derive(Default)]
pub(crate) struct Meter {
    /// When the thread that has the turn began the first of its operations, or [`REST`].
    since: AtomicU64,
    /// Nanoseconds up to then.
    busy: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
}

const REST: u64 = 0;

impl Meter {
    /// An operation begins.
    #[inline]
    pub(crate) fn start(&self) {
        if self.since.load(Ordering::Relaxed) == REST {
            self.since.store(coarse_clock(), Ordering::Relaxed);
        }
    }

    /// The turn leaves the thread.
    #[inline]
    pub(crate) fn stop(&self) {
        let since = self.since.load(Ordering::Relaxed);
        if since != REST {
            add(&self.busy, coarse_clock().saturating_sub(since));
            self.since.store(REST, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn fail(&self) {
        add(&self.failed, 1);
    }

    pub(crate) fn skip(&self) {
        add(&self.skipped, 1);
    }

    pub(crate) fn stats(&self) -> Stats {
        let since = self.since.load(Ordering::Relaxed);
        let running = if since == REST {
            0
        } else {
            coarse_clock().saturating_sub(since)
        };
        let busy = self.busy.load(Ordering::Relaxed) + running;
        Stats {
            failed: self.failed.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            is_running: since != REST,
            busy: Duration::from_nanos(busy),
            ..Stats::default()
        }
    }
}

/// Only the holder of the turn adds.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// How deep a strand's queue has been. Packed, for the sake of ten thousand strands.
#[derive(Clone, Copy, Default)]
#[repr(C, packed(2))]
pub(crate) struct Depth {
    deepest: u32,
    /// As many submissions as this need no look.
    unlooked: u16,
}

impl Depth {
    /// `more` operations were submitted; `submitted` is their number now.
    #[inline]
    pub(crate) fn deepen(&mut self, more: u16, submitted: u64, timeline: &Timeline) {
        match self.unlooked.checked_sub(more) {
            Some(left) => self.unlooked = left,
            None => self.look(submitted, timeline),
        }
    }

    /// Finds out how deep it is.
    #[cold]
    pub(crate) fn look(&mut self, submitted: u64, timeline: &Timeline) {
        let depth = submitted.saturating_sub(timeline.reached());
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        self.deepest = self.deepest.max(depth);
        let room = (self.deepest - depth).max(depth / 16);
        self.unlooked = u16::try_from(room).unwrap_or(u16::MAX);
    }

    pub(crate) fn deepest(&self) -> u64 {
        self.deepest.into()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Submits and ends so many by turns, and tells how deep the queue really was and is said to be.
    fn depths(steps: &[(u16, u16)]) -> (u64, u64) {
        let (timeline, mut depth) = (Timeline::new(), Depth::default());
        let (mut submitted, mut most) = (0, 0);
        for &(more, ended) in steps {
            for _ in 0..more {
                submitted += 1;
                depth.deepen(1, submitted, &timeline);
                most = most.max(submitted - timeline.reached());
            }
            (0..ended).for_each(|_| timeline.advance());
        }
        (most, depth.deepest())
    }

    #[test]
    fn a_depth_of_sixteen_is_exact() {
        for most in 1..=16 {
            assert_eq!(
                depths(&[(most, most), (1, 1), (most, 0)]),
                (most.into(), most.into())
            );
            let halves = [(most / 2, 0), (most - most / 2, 1), (1, most)];
            assert_eq!(depths(&halves), (most.into(), most.into()));
        }
    }

    #[test]
    fn a_greater_depth_is_within_a_sixteenth() {
        for step in [1, 3, 50, 1000, 20_000] {
            let steps: Vec<_> = (0..40).map(|at| (step + at, (step + at) / 3)).collect();
            let (most, told) = depths(&steps);
            assert!(
                told <= most && most <= told + told / 16 + 1,
                "{most} {told}"
            );
        }
    }

    #[test]
    fn the_clock_runs_from_the_first_operation_to_the_end_of_the_turn() {
        let meter = Meter::default();
        meter.stop();
        assert!(!meter.stats().is_running);
        meter.start();
        while meter.stats().busy.is_zero() {
            std::hint::spin_loop();
        }
        meter.start();
        let busy = meter.stats().busy;
        assert!(
            meter.stats().is_running && !busy.is_zero(),
            "a second start changes nothing"
        );
        meter.stop();
        let rest = meter.stats();
        assert!(!rest.is_running && rest.busy >= busy);
        assert_eq!(meter.stats().busy, rest.busy);
    }
}
