//! Promise 13, where the public interface cannot reach: a fork may find any lock held by a thread
//! that does not exist in the child. Nothing that the child can call may take one.

#[path = "../../tests/executor/child.rs"]
mod child;

use std::future::Future as _;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use self::child::fork;
use crate::{
    AsyncWait, Config, Executor, ForeignThread, Host, Kind, Mark, Native, Next, Operation, Refused,
};

fn executor() -> Executor {
    let config = Config {
        workers: 1,
        host_threads: 4,
        reporter: Box::new(|_| {}),
        recruiter: None,
    };
    Executor::new(config).unwrap()
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

struct Function;

impl Operation for Function {
    const KIND: Kind = Kind::Foreign;

    fn run(self) -> Result<(), crate::Fault> {
        unreachable!("foreign operations are taken")
    }
}

#[test]
fn promise_13_a_child_takes_no_inherited_lock() {
    let executor = executor();
    let (strand, inline) = (executor.strand(None), executor.inline_strand("default"));
    let foreign = executor.strand(None);
    foreign.push(Function).unwrap();
    assert!(executor.recruit());
    let mut thread = Some(ForeignThread::arrive(&executor));
    let taken = thread.as_mut().unwrap().next::<Function>();
    assert!(matches!(taken, Some(Next::Run(Function))));

    // The calling thread is inside two operations, and has begun every kind of wait.
    let turn = inline.visit().unwrap().unwrap();
    assert!(turn.until(soon()));
    let mut inside = Some(turn.enter().unwrap());
    let never = strand.point().at(9);
    let mut waiting = Some(never.wait().unwrap());
    assert!(!waiting.as_mut().unwrap().until(Some(Instant::now())));
    let mut task = Box::pin(AsyncWait::new(never.clone()));
    let polled = Pin::as_mut(&mut task).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let mut task = Some(task);
    let queue = executor.inline_strand("queue");
    queue.wait_for(&strand.point().at(1)).unwrap();
    let mut visitor = Some(queue.visit().unwrap().unwrap());
    let point = strand.point();
    let strands = [&strand, &inline, &foreign, &queue];

    let in_the_child = || {
        for strand in strands {
            let inherited = |outcome| matches!(outcome, Err(Refused::Inherited));
            assert!(inherited(
                strand.push(Native::new(|| Ok(()), None)).map(drop)
            ));
            assert!(inherited(strand.push(Host::new(|| Ok(()), None)).map(drop)));
            assert!(inherited(strand.push(Mark::new(|| ())).map(drop)));
            assert!(inherited(strand.push_at(Function).map(drop)));
            assert!(inherited(strand.wait_for(&point)));
            assert!(inherited(strand.visit().map(drop)));
            let ahead = [never.position().clone()];
            assert!(inherited(strand.push_after(ahead, Function).map(drop)));
            assert!(inherited(strand.admit()));
            assert_eq!(strand.pending(), 0);
            assert!(strand.failure().is_none() && strand.inside().is_none());
            assert!(!strand.acknowledge_if(|_| true));
            assert!(strand.with_sole_failure(|_| ()).is_none());
            assert!(!strand.point().is_reached() && strand.point().failure().is_none());
            strand.point().acknowledge();
            strand
                .point()
                .when_reached(|| unreachable!("nothing is reached here"));
            strand.orphan();
        }
        assert!(matches!(
            executor.push_loose(Function),
            Err(Refused::Inherited)
        ));
        assert!(!executor.recruit() && executor.dismiss_if_idle());
        executor.dismiss();
        assert_eq!(executor.threads(), [0; 3]);
        assert!(executor.drain(None) && executor.take_unacknowledged().is_empty());
        executor.close();
        let calls = AtomicUsize::new(0);
        executor.parallel_for(3, 1, |_| {
            calls.fetch_add(1, SeqCst);
        });
        assert_eq!(calls.into_inner(), 3);
        drop((waiting.take(), task.take(), visitor.take(), inside.take()));
        let thread = thread.as_mut().unwrap();
        thread.finish(Ok(()));
        assert!(thread.next::<Function>().is_none() && !thread.rest());
    };
    let mut in_the_child = Some(in_the_child);
    let with_strands_held = || {
        strand.with_locks_held(|| {
            inline.with_locks_held(|| {
                foreign.with_locks_held(|| {
                    queue.with_locks_held(|| fork(in_the_child.take().unwrap()));
                });
            });
        });
    };
    executor.shared().with_locks_held(with_strands_held);

    // The parent goes on as if nothing had been.
    drop((waiting.take(), task.take()));
    inside.take().unwrap().finish(Ok(()));
    thread.as_mut().unwrap().finish(Ok(()));
    strand.push(Mark::new(|| ())).unwrap();
    assert!(visitor.as_ref().unwrap().until(soon()));
    drop((visitor, thread));
    assert!(executor.drain(soon()));
}

/// Dropping the handles in the child, the last ones included, takes no lock either.
#[test]
fn promise_13_a_child_may_drop_what_it_inherited() {
    let executor = ManuallyDrop::new(executor());
    let strand = executor.strand(None);
    let point = strand.point();
    let mut handles = Some((ManuallyDrop::into_inner(executor), strand, point));
    let (executor, strand, _) = handles.as_ref().unwrap();
    let (shared, held) = (executor.shared().clone(), strand.clone());
    shared.with_locks_held(|| held.with_locks_held(|| fork(|| drop(handles.take()))));
    let (executor, ..) = handles.unwrap();
    assert!(executor.drain(soon()));
}
