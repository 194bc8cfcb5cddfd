//! Models of one operation shared out over two threads.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::loom_support::{Cell, check, check_with_fewer, executor, native, spawn, wait};

/// The helper comes before, while and after the caller takes its part, or not at all.
#[test]
fn the_caller_returns_when_each_chunk_has_ended_once_and_sees_what_they_wrote() {
    check(|| {
        let executor = executor(2);
        let chunks = [Cell::new(), Cell::new()];
        let ended = Cell::new();
        executor.parallel_for(2, 1, |range| {
            chunks[range.start].step(0);
            ended.tally();
        });
        assert_eq!(chunks.map(|chunk| chunk.get()), [1, 1]);
        assert_eq!(ended.get(), 2);
    });
}

#[test]
fn chunks_see_what_the_caller_wrote_before() {
    check(|| {
        let executor = executor(2);
        let (log, wrong) = (Cell::new(), Cell::new());
        log.set(1);
        executor.parallel_for(2, 1, |_| {
            if log.get() != 1 {
                wrong.tally();
            }
        });
        assert_eq!(wrong.get(), 0);
    });
}

/// The function is gone once the call returns, by a panic too.
#[test]
fn a_panic_comes_out_after_the_chunk_of_the_helper() {
    check(|| {
        let executor = executor(2);
        let chunks = [Cell::new(), Cell::new()];
        let call = AssertUnwindSafe(|| {
            executor.parallel_for(2, 1, |range| {
                chunks[range.start].step(0);
                resume_unwind(Box::new(range.start));
            });
        });
        let payload = catch_unwind(call).unwrap_err();
        assert!(*payload.downcast::<usize>().unwrap() < 2);
        assert_eq!(chunks.map(|chunk| chunk.get()), [1, 1]);
    });
}

#[test]
fn a_shutdown_meanwhile_cuts_nothing_short() {
    check(|| {
        let executor = Arc::new(executor(2));
        let closer = spawn({
            let executor = executor.clone();
            move || executor.close()
        });
        let chunks = [Cell::new(), Cell::new()];
        executor.parallel_for(2, 1, |range| chunks[range.start].step(0));
        assert_eq!(chunks.map(|chunk| chunk.get()), [1, 1]);
        closer.join().unwrap();
    });
}

/// From inside an operation, by a worker, with one more to help it.
#[test]
fn a_worker_may_share_its_operation_out() {
    check_with_fewer(1, || {
        let executor = Arc::new(executor(2));
        let chunks = [Cell::new(), Cell::new()];
        let work = {
            let (executor, chunks) = (executor.clone(), chunks.clone());
            native(move || executor.parallel_for(2, 1, |range| chunks[range.start].step(0)))
        };
        let end = executor.strand(None).push_at(work).unwrap();
        wait(&end);
        assert!(end.failure().is_none());
        assert_eq!(chunks.map(|chunk| chunk.get()), [1, 1]);
    });
}
