//! Promise 3, as far as the executor goes: operations that the calling thread runs itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use clika_executor::Mark;

use super::support::{
    Gate, enter, eventually, executor, host, native, rounds, soon, synchronize, threads, wait,
    with_workers,
};

#[test]
fn promise_03_a_visit_runs_on_the_calling_thread_and_is_done_on_return() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    assert!(strand.is_inline() && strand.inside().is_none());
    let inside = enter(&strand);
    assert_eq!(strand.inside(), Some(1));
    let point = strand.point();
    assert!(!point.is_reached());
    inside.finish(Ok(()));
    assert!(point.is_reached() && strand.inside().is_none());
    assert_eq!(strand.pending(), 0);
}

#[test]
fn promise_03_visitors_of_several_threads_take_turns() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    let (busy, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
    threads(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..rounds(500) {
                    let inside = enter(&strand);
                    assert!(!busy.swap(true, SeqCst), "two visitors at once");
                    ran.fetch_add(1, SeqCst);
                    busy.store(false, SeqCst);
                    inside.finish(Ok(()));
                }
            });
        }
    });
    assert_eq!(ran.load(SeqCst), 4 * rounds(500));
    assert_eq!(strand.pending(), 0);
}

#[test]
fn promise_03_a_visit_waits_for_what_it_depends_on() {
    let executor = executor();
    let (inline, other) = (executor.inline_strand("default"), executor.strand(None));
    let (gate, ran) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let work = {
        let (gate, ran) = (gate.clone(), ran.clone());
        host(move || {
            gate.pass();
            ran.store(true, SeqCst);
        })
    };
    inline.wait_for(&other.push_at(work).unwrap()).unwrap();
    let visitor = inline.visit().unwrap().unwrap();
    assert!(!visitor.until(Some(Instant::now())));
    gate.open();
    assert!(visitor.until(soon()));
    assert!(ran.load(SeqCst));
    visitor.enter().unwrap().finish(Ok(()));
}

#[test]
fn promise_03_a_visit_that_is_withdrawn_before_its_turn_is_skipped() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    let inside = enter(&strand);
    std::thread::scope(|scope| {
        let withdrawn = scope.spawn(|| {
            let visitor = strand.visit().unwrap().unwrap();
            assert!(!visitor.until(Some(Instant::now() + Duration::from_millis(20))));
            visitor.point().clone()
        });
        let point = withdrawn.join().unwrap();
        assert!(!point.is_reached());
        inside.finish(Ok(()));
        wait(&point);
        assert!(point.failure().is_none());
    });
    enter(&strand).finish(Ok(()));
    assert_eq!(strand.pending(), 0);
}

/// Visitors come, wait a little and go, while others take their turns.
#[test]
fn promise_03_withdrawals_lose_no_turn() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    let ran = AtomicUsize::new(0);
    threads(|threads| {
        for thread in 0..4 {
            let (strand, ran) = (&strand, &ran);
            threads.spawn(move || {
                for n in 0..rounds(500) {
                    let visitor = strand.visit().unwrap().unwrap();
                    if (n + thread) % 3 == 0 {
                        let _ = visitor.until(Some(Instant::now()));
                        continue;
                    }
                    assert!(visitor.until(soon()));
                    visitor.enter().unwrap().finish(Ok(()));
                    ran.fetch_add(1, SeqCst);
                }
            });
        }
    });
    eventually(|| strand.pending() == 0);
    assert!(ran.load(SeqCst) > 0);
    assert!(executor.drain(soon()));
}

/// A thread that panics inside its turn gives it back.
#[test]
fn promise_08_a_visitor_that_panics_passes_the_turn_on() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _inside = enter(&strand);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panics.join().is_err());
    });
    enter(&strand).finish(Ok(()));
    synchronize(&strand);
}

/// Other records of an inline strand, marks and waits, are taken along by whoever passes.
#[test]
fn promise_03_marks_of_an_inline_strand_run_in_order() {
    let executor = executor();
    let strand = executor.inline_strand("default");
    let steps = Arc::new(AtomicUsize::new(0));
    for n in 0..100 {
        let marked = steps.clone();
        strand
            .push(Mark::new(move || {
                assert_eq!(marked.fetch_add(1, SeqCst), 2 * n)
            }))
            .unwrap();
        let inside = enter(&strand);
        assert_eq!(steps.fetch_add(1, SeqCst), 2 * n + 1);
        inside.finish(Ok(()));
    }
    assert_eq!((strand.pending(), steps.load(SeqCst)), (0, 200));
}

/// With one worker, an operation waits for its turn behind native work of another strand.
#[test]
fn promise_09_an_operation_may_wait_for_its_turn_with_one_worker() {
    let executor = with_workers(1);
    let (inline, outer, inner) = (
        executor.inline_strand("default"),
        executor.strand(None),
        executor.strand(None),
    );
    let end = {
        let inline = inline.clone();
        let work = native(move || {
            inline
                .wait_for(&inner.push_at(native(|| ())).unwrap())
                .unwrap();
            enter(&inline).finish(Ok(()));
        });
        outer.push_at(work).unwrap()
    };
    wait(&end);
    assert!(end.failure().is_none());
}
