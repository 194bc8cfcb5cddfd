//! Models of the timeline: registering, reaching, taking back.

use std::sync::Arc;

use super::loom_support::{Cell, check, spawn};
use crate::sync::{current, park_until};
use crate::timeline::{Ticket, Timeline, Waiter};

/// A waiter that counts its calls in `woken`, and checks that `written` has arrived.
fn counts(woken: &Cell, written: &Cell, expected: usize) -> Waiter {
    let (woken, written) = (woken.clone(), written.clone());
    Waiter::Call(Box::new(move || {
        assert!(
            written.get() >= expected,
            "woken before what it waits for is visible"
        );
        woken.tally();
    }))
}

/// Registers, and does at once what the waiter would do if the target is reached.
fn register(timeline: &Timeline, target: u64, waiter: Waiter) -> Option<Ticket> {
    match timeline.register(target, waiter) {
        Ok(ticket) => Some(ticket),
        Err(Waiter::Call(call)) => {
            call();
            None
        }
        Err(_) => unreachable!("a call went in"),
    }
}

fn advance(timeline: &Timeline, written: &Cell, to: usize) {
    written.set(to);
    timeline.advance();
}

#[test]
fn a_waiter_is_woken_once_however_it_meets_the_advance() {
    check(|| {
        let timeline = Arc::new(Timeline::new());
        let (woken, written) = (Cell::new(), Cell::new());
        let signal = spawn({
            let (timeline, written) = (timeline.clone(), written.clone());
            move || advance(&timeline, &written, 1)
        });
        register(&timeline, 1, counts(&woken, &written, 1));
        signal.join().unwrap();
        assert_eq!(woken.get(), 1);
    });
}

#[test]
fn two_waiters_of_two_targets_are_each_woken_once_and_not_early() {
    check(|| {
        let timeline = Arc::new(Timeline::new());
        let (first, second, written) = (Cell::new(), Cell::new(), Cell::new());
        let signal = spawn({
            let (timeline, written) = (timeline.clone(), written.clone());
            move || {
                advance(&timeline, &written, 1);
                advance(&timeline, &written, 2);
            }
        });
        let other = spawn({
            let (timeline, written, second) = (timeline.clone(), written.clone(), second.clone());
            move || {
                register(&timeline, 2, counts(&second, &written, 2));
            }
        });
        register(&timeline, 1, counts(&first, &written, 1));
        signal.join().unwrap();
        other.join().unwrap();
        assert_eq!((first.get(), second.get()), (1, 1));
    });
}

#[test]
fn a_waiter_taken_back_is_not_woken_and_one_woken_cannot_be_taken_back() {
    check(|| {
        let timeline = Arc::new(Timeline::new());
        let (woken, written) = (Cell::new(), Cell::new());
        let signal = spawn({
            let (timeline, written) = (timeline.clone(), written.clone());
            move || advance(&timeline, &written, 1)
        });
        let ticket = register(&timeline, 1, counts(&woken, &written, 1));
        let taken = ticket
            .and_then(|ticket| timeline.unregister(ticket))
            .is_some();
        signal.join().unwrap();
        assert_eq!(woken.get() + usize::from(taken), 1);
    });
}

/// The last waiter leaves and clears the mark, while another comes and the target is reached.
#[test]
fn a_waiter_that_leaves_does_not_lose_the_wake_up_of_one_that_comes() {
    check(|| {
        let timeline = Arc::new(Timeline::new());
        let (left, stays, written) = (Cell::new(), Cell::new(), Cell::new());
        let ticket = timeline
            .register(2, counts(&left, &written, 2))
            .ok()
            .unwrap();
        let signal = spawn({
            let (timeline, written) = (timeline.clone(), written.clone());
            move || advance(&timeline, &written, 1)
        });
        let leaver = spawn({
            let timeline = timeline.clone();
            move || assert!(timeline.unregister(ticket).is_some())
        });
        register(&timeline, 1, counts(&stays, &written, 1));
        signal.join().unwrap();
        leaver.join().unwrap();
        assert_eq!((left.get(), stays.get()), (0, 1));
    });
}

/// No wake-up is lost: a sleeping thread that missed one would hang the model.
#[test]
fn a_thread_that_sleeps_until_a_number_sees_what_was_written_before_it() {
    check(|| {
        let timeline = Arc::new(Timeline::new());
        let written = Cell::new();
        spawn({
            let (timeline, written) = (timeline.clone(), written.clone());
            move || {
                advance(&timeline, &written, 1);
                advance(&timeline, &written, 2);
            }
        });
        if timeline.register(2, Waiter::Thread(current())).is_ok() {
            while timeline.reached() < 2 {
                park_until(None);
            }
        }
        assert_eq!(written.get(), 2);
    });
}
