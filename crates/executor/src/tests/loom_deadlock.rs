//! Models of the deadlock walk.

use super::loom_support::{Cell, check, executor, native, run, spawn, take, unmanned, wait};

/// Two operations wait for each other's end at the same time: one is refused, and so both end.
#[test]
fn of_two_operations_that_wait_for_each_other_one_is_refused() {
    check(|| {
        let executor = unmanned();
        let strands = [executor.strand(None), executor.strand(None)];
        let refused = Cell::new();
        // Both are submitted before either runs its wait: the points are taken ahead.
        let points = [0, 1].map(|at| strands[at].point().at(1));
        for at in [0, 1] {
            let (other, refused) = (points[1 - at].clone(), refused.clone());
            let work = native(move || match other.wait() {
                Ok(mut wait) => assert!(wait.until(None)),
                Err(_) => refused.tally(),
            });
            strands[at].push(work).unwrap();
        }
        let (first, second) = (take(&executor), take(&executor));
        let other = spawn(move || run(first));
        run(second);
        other.join().unwrap();
        assert!(strands.iter().all(|strand| strand.pending() == 0));
        assert!(refused.get() <= 1);
    });
}

/// An operation visits the inline strand while a visitor that came just before it waits for that
/// operation.
#[test]
fn of_a_visit_and_a_visitor_that_wait_for_each_other_one_is_refused() {
    check(|| {
        let executor = executor(1);
        let (inline, strand) = (executor.inline_strand("inline"), executor.strand(None));
        let end = strand
            .push_at(native({
                let inline = inline.clone();
                move || {
                    if let Ok(visitor) = inline.visit().unwrap() {
                        assert!(visitor.until(None));
                        visitor.enter().unwrap().finish(Ok(()));
                    }
                }
            }))
            .unwrap();
        let visitor = inline.visit().unwrap().unwrap();
        assert!(visitor.until(None));
        let inside = visitor.enter().unwrap();
        if let Ok(mut wait) = end.wait() {
            assert!(wait.until(None));
        }
        inside.finish(Ok(()));
        wait(&end);
    });
}
