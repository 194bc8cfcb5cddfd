//! Models of inline strands: visitors, batons, withdrawal.

use std::sync::Arc;

use super::loom_support::{
    Cell, check, enter, executor, native, past, spawn, unmanned, wait, work_off,
};

#[test]
fn visitors_take_turns_and_each_sees_what_the_one_before_wrote() {
    check(|| {
        let executor = unmanned();
        let strand = executor.inline_strand("inline");
        let log = Cell::new();
        let visit = {
            let (strand, log) = (strand.clone(), log.clone());
            move || {
                let inside = enter(&strand);
                let before = log.get();
                log.set(before + 1);
                inside.finish(Ok(()));
                before
            }
        };
        let other = spawn(visit.clone());
        let mine = visit();
        let other = other.join().unwrap();
        assert_eq!((mine.min(other), mine.max(other)), (0, 1));
        assert_eq!(strand.pending(), 0);
    });
}

/// The visitor gives up before, while and after the turn is given to it.
#[test]
fn a_visitor_that_withdraws_holds_nobody_up() {
    check(|| {
        let executor = unmanned();
        let strand = executor.inline_strand("inline");
        let inside = enter(&strand);
        let quitter = spawn({
            let strand = strand.clone();
            move || {
                let visitor = strand.visit().unwrap().unwrap();
                let _ = visitor.until(past());
            }
        });
        inside.finish(Ok(()));
        enter(&strand).finish(Ok(()));
        quitter.join().unwrap();
        assert_eq!(strand.pending(), 0);
        assert!(executor.drain(None));
    });
}

#[test]
fn a_visit_comes_after_what_the_strand_waits_for() {
    check(|| {
        let executor = executor(1);
        let (inline, other) = (executor.inline_strand("inline"), executor.strand(None));
        let log = Cell::new();
        other
            .push(native({
                let log = log.clone();
                move || log.step(0)
            }))
            .unwrap();
        inline.wait_for(&other.point()).unwrap();
        let inside = enter(&inline);
        assert_eq!(log.get(), 1);
        inside.finish(Ok(()));
        wait(&inline.point());
    });
}

/// A visitor waits while the executor closes: it gets its turn or is dropped, but is not left.
#[test]
fn a_visitor_in_the_queue_is_not_left_behind_by_the_shutdown() {
    check(|| {
        let executor = Arc::new(unmanned());
        let strand = executor.inline_strand("inline");
        let inside = enter(&strand);
        let visitor = spawn({
            let strand = strand.clone();
            move || {
                if let Ok(visitor) = strand.visit() {
                    let visitor = visitor.unwrap();
                    assert!(visitor.until(None));
                    drop(visitor.enter());
                }
            }
        });
        executor.close();
        inside.finish(Ok(()));
        visitor.join().unwrap();
        assert_eq!(strand.pending(), 0);
    });
}

/// Two native operations visit the same inline strand.
#[test]
fn operations_may_visit() {
    check(|| {
        let executor = Arc::new(unmanned());
        let inline = executor.inline_strand("inline");
        let log = Cell::new();
        for strand in [executor.strand(None), executor.strand(None)] {
            let (inline, log) = (inline.clone(), log.clone());
            let work = native(move || {
                let inside = enter(&inline);
                log.set(log.get() + 1);
                inside.finish(Ok(()));
            });
            strand.push(work).unwrap();
        }
        let other = spawn({
            let executor = executor.clone();
            move || work_off(&executor)
        });
        work_off(&executor);
        other.join().unwrap();
        assert_eq!((log.get(), inline.pending()), (2, 0));
    });
}
