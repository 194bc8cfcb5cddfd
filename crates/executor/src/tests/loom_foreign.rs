//! Models of threads of another language.

use std::sync::Arc;

use super::loom_support::{Cell, JoinHandle, check, spawn, unmanned, wait};
use crate::failure::Fault;
use crate::{Executor, ForeignThread, Kind, Next, Operation};

/// An operation that only its taker runs.
struct Step(Cell, usize);

impl Operation for Step {
    const KIND: Kind = Kind::Foreign;

    fn run(self) -> Result<(), Fault> {
        unreachable!("foreign operations are taken")
    }
}

/// Recruits a thread, if the lane needs one, that works until the lane closes.
fn recruit(executor: &Arc<Executor>) -> Option<JoinHandle<()>> {
    executor.recruit().then(|| {
        let executor = executor.clone();
        spawn(move || serve(&executor))
    })
}

fn serve(executor: &Arc<Executor>) {
    let mut thread = ForeignThread::arrive(executor);
    loop {
        match thread.next::<Step>() {
            Some(Next::Run(Step(log, n))) => {
                log.step(n);
                thread.finish(Ok(()));
            }
            Some(Next::Skip(..)) => thread.finish(Ok(())),
            None if thread.rest() => {}
            None => return,
        }
    }
}

#[test]
fn a_foreign_thread_runs_what_is_pushed_while_it_goes_to_sleep() {
    check(|| {
        let executor = Arc::new(unmanned());
        let strand = executor.strand(None);
        let thread = recruit(&executor).unwrap();
        let log = Cell::new();
        for n in 0..2 {
            strand.push(Step(log.clone(), n)).unwrap();
        }
        wait(&strand.point());
        assert_eq!(log.get(), 2);
        executor.close();
        thread.join().unwrap();
        assert_eq!(executor.threads()[2], 0);
    });
}

/// A thread that ends with a strand in its hands leaves it to the next.
#[test]
fn a_foreign_thread_that_ends_early_leaves_its_strand_to_another() {
    check(|| {
        let executor = Arc::new(unmanned());
        let strand = executor.strand(None);
        let log = Cell::new();
        for n in 0..2 {
            strand.push(Step(log.clone(), n)).unwrap();
        }
        assert!(executor.recruit());
        let quitter = spawn({
            let executor = executor.clone();
            move || {
                let mut thread = ForeignThread::arrive(&executor);
                if let Some(Next::Run(Step(log, n))) = thread.next::<Step>() {
                    log.step(n);
                    thread.finish(Ok(()));
                }
            }
        });
        let thread = recruit(&executor);
        quitter.join().unwrap();
        let thread = thread.or_else(|| recruit(&executor)).unwrap();
        wait(&strand.point());
        executor.close();
        thread.join().unwrap();
        assert_eq!(executor.threads()[2], 0);
    });
}
