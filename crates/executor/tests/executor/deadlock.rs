//! Promise 9: a wait inside an operation that could never end is refused; no other is.

use std::sync::Arc;

use clika_executor::{Deadlock, Executor, Operation, Point, Strand};

use super::support::{
    Gate, Log, enter, executor, failing, hold_workers, host, native, rounds, soon, synchronize,
    wait, with_workers, workers,
};

/// Waits inside an operation.
fn wait_inside(point: &Point) -> Result<(), Deadlock> {
    assert!(point.wait()?.until(soon()), "hangs: {point:?}");
    Ok(())
}

/// Runs `work` as an operation of `strand` and gives its result.
fn inside<R: Send + 'static>(strand: &Arc<Strand>, work: impl FnOnce() -> R + Send + 'static) -> R {
    let log = Log::new();
    let end = {
        let log = log.clone();
        strand.push_at(host(move || log.add(work()))).unwrap()
    };
    wait(&end);
    assert!(end.failure().is_none(), "{:?}", end.failure());
    log.take().remove(0)
}

#[test]
fn promise_09_an_operation_cannot_wait_for_itself() {
    let executor = executor();
    let strand = executor.strand(None);
    let own = strand.clone();
    assert_eq!(
        inside(&strand, move || wait_inside(&own.point())),
        Err(Deadlock)
    );
}

#[test]
fn promise_09_an_operation_cannot_wait_for_what_comes_after_it() {
    let executor = executor();
    let strand = executor.strand(None);
    let own = strand.clone();
    let outcome = inside(&strand, move || {
        let later = own.push_at(native(|| ())).unwrap();
        wait_inside(&later)
    });
    assert_eq!(outcome, Err(Deadlock));
}

#[test]
fn promise_09_an_operation_may_wait_for_what_came_before_it() {
    let executor = executor();
    let strand = executor.strand(None);
    let before = strand.push_at(native(|| ())).unwrap();
    assert_eq!(inside(&strand, move || wait_inside(&before)), Ok(()));
}

/// The other strand waits, by its queue, for the operation that would wait for it.
#[test]
fn promise_09_a_cycle_through_a_strands_wait_is_refused() {
    let executor = executor();
    let strands: Vec<_> = (0..5).map(|_| executor.strand(None)).collect();
    let (others, gate) = (strands.clone(), Gate::default());
    let start = gate.clone();
    let log = Log::new();
    let end = {
        let log = log.clone();
        let work = move || {
            start.pass();
            log.add(wait_inside(&others[4].point()));
        };
        strands[0].push_at(host(work)).unwrap()
    };
    for pair in strands.windows(2) {
        pair[1].wait_for(&pair[0].point()).unwrap();
        pair[1].push(native(|| ())).unwrap();
    }
    gate.open();
    wait(&end);
    assert_eq!(log.take(), [Err(Deadlock)]);
    strands.iter().for_each(synchronize);
}

/// The wait in the other strand's queue lies behind the point, so there is no cycle.
#[test]
fn promise_09_a_wait_behind_the_awaited_point_is_no_cycle() {
    let executor = executor();
    let (first, second) = (executor.strand(None), executor.strand(None));
    let gate = Gate::default();
    let point = {
        let gate = gate.clone();
        second.push_at(host(move || gate.pass())).unwrap()
    };
    let log = Log::new();
    let end = {
        let (log, gate) = (log.clone(), gate.clone());
        let work = move || {
            let mut waiting = point.wait();
            gate.open();
            log.add(
                waiting
                    .as_mut()
                    .map(|wait| wait.until(soon()))
                    .map_err(|deadlock| *deadlock),
            );
        };
        first.push_at(host(work)).unwrap()
    };
    second.wait_for(&end).unwrap();
    second.push(native(|| ())).unwrap();
    synchronize(&second);
    assert_eq!(log.take(), [Ok(true)]);
}

/// A ring of operations, each of which waits for the next. All are under way before any waits.
#[test]
fn promise_09_in_a_ring_of_operations_one_is_refused_and_all_end() {
    for size in [2, 3, 8] {
        let executor = with_workers(1);
        ring(&executor, size, host);
    }
    let executor = with_workers(workers().max(2));
    for _ in 0..rounds(50) {
        ring(&executor, 2, native);
    }
}

fn ring<T: Operation>(
    executor: &Executor,
    size: usize,
    make: impl Fn(Box<dyn FnOnce() + Send>) -> T,
) {
    let strands: Vec<_> = (0..size).map(|_| executor.strand(None)).collect();
    let points: Vec<_> = strands.iter().map(|strand| strand.point().at(1)).collect();
    let (gate, log) = (Gate::default(), Log::new());
    for (at, strand) in strands.iter().enumerate() {
        let (next, gate, log) = (points[(at + 1) % size].clone(), gate.clone(), log.clone());
        let work = move || {
            gate.pass();
            log.add(wait_inside(&next));
        };
        strand.push(make(Box::new(work))).unwrap();
    }
    gate.await_waiting(size);
    gate.open();
    points.iter().for_each(wait);
    let outcomes = log.take();
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_err()).count(),
        1
    );
}

/// Many operations wait for one that waits for none: nobody is refused.
#[test]
fn promise_09_waits_that_can_end_are_never_refused() {
    let executor = Arc::new(with_workers(1));
    let hub = executor.strand(None);
    let (gate, log) = (Gate::default(), Log::new());
    let point = {
        let gate = gate.clone();
        hub.push_at(host(move || gate.pass())).unwrap()
    };
    let strands: Vec<_> = (0..30).map(|_| executor.strand(None)).collect();
    for strand in &strands {
        let (point, log) = (point.clone(), log.clone());
        strand
            .push(native(move || log.add(wait_inside(&point))))
            .unwrap();
    }
    gate.open();
    strands.iter().for_each(synchronize);
    assert_eq!(log.take(), vec![Ok(()); 30]);
}

#[test]
fn promise_09_a_visit_cannot_wait_for_itself() {
    let executor = executor();
    let strand = executor.inline_strand("inline");
    let inside = enter(&strand);
    assert_eq!(wait_inside(&strand.point()), Err(Deadlock));
    assert!(matches!(strand.visit(), Ok(Err(Deadlock))));
    inside.finish(Ok(()));
    enter(&strand).finish(Ok(()));
    synchronize(&strand);
}

#[test]
fn promise_09_a_visit_may_wait_for_another_strand() {
    let executor = executor();
    let (inline, other) = (executor.inline_strand("inline"), executor.strand(None));
    let inside = enter(&inline);
    let point = other.push_at(native(|| ())).unwrap();
    assert_eq!(wait_inside(&point), Ok(()));
    inside.finish(Ok(()));
}

/// The inline strand waits for the operation that wants to visit it.
#[test]
fn promise_09_a_visit_that_waits_for_its_own_operation_is_refused() {
    let executor = executor();
    let (inline, strand) = (executor.inline_strand("inline"), executor.strand(None));
    let (gate, log) = (Gate::default(), Log::new());
    let end = {
        let (inline, gate, log) = (inline.clone(), gate.clone(), log.clone());
        let work = move || {
            gate.pass();
            log.add(inline.visit().unwrap().is_err());
        };
        strand.push_at(host(work)).unwrap()
    };
    inline.wait_for(&end).unwrap();
    gate.open();
    wait(&end);
    assert_eq!(log.take(), [true]);
    enter(&inline).finish(Ok(()));
}

/// A visitor waits inside its operation for one that waits for its turn behind it.
#[test]
fn promise_09_a_cycle_through_a_visitor_is_refused() {
    let executor = executor();
    let (inline, strand) = (executor.inline_strand("inline"), executor.strand(None));
    let inside = enter(&inline);
    let (visiting, gate) = (inline.clone(), Gate::default());
    let end = {
        let gate = gate.clone();
        let work = move || {
            let visitor = visiting.visit().unwrap().unwrap();
            gate.open();
            assert!(visitor.until(soon()));
            visitor.enter().unwrap().finish(Ok(()));
        };
        strand.push_at(host(work)).unwrap()
    };
    gate.pass();
    assert_eq!(wait_inside(&end), Err(Deadlock));
    inside.finish(Ok(()));
    wait(&end);
    assert!(end.failure().is_none());
}

/// Strands of two executors are told apart.
#[test]
fn promise_09_another_executors_strand_is_not_mistaken_for_ones_own() {
    let (first, second) = (executor(), executor());
    let strand = first.strand(None);
    let other = second.strand(None);
    let gate = Gate::default();
    let point = {
        let gate = gate.clone();
        other.push_at(host(move || gate.pass())).unwrap()
    };
    let outcome: Result<bool, Deadlock> = inside(&strand, move || {
        let mut waiting = point.wait()?;
        gate.open();
        Ok(waiting.until(soon()))
    });
    assert_eq!(outcome, Ok(true));
}

/// Waits for the end of its strand when it is dropped.
struct Lingers(Arc<Strand>, Log<Result<(), Deadlock>>);

impl Drop for Lingers {
    fn drop(&mut self) {
        self.1.add(wait_inside(&self.0.point()));
    }
}

/// What an operation captured is dropped inside of it, whether it runs or is let go.
#[test]
fn promise_09_a_destructor_of_a_captured_value_cannot_wait_for_its_own_operation() {
    let executor = executor();
    let gate = hold_workers(&executor, workers());
    let (strand, log) = (executor.strand(None), Log::new());
    let lingers = || {
        let lingers = Lingers(strand.clone(), log.clone());
        native(move || drop(lingers))
    };
    strand.push(lingers()).unwrap();
    strand.push(failing("on purpose")).unwrap();
    strand.push(lingers()).unwrap();
    let end = strand.point();
    gate.open();
    wait(&end);
    assert_eq!(log.take(), [Err(Deadlock); 2]);
    end.acknowledge();
    let gate = hold_workers(&executor, workers());
    strand.push(lingers()).unwrap();
    executor.close();
    assert_eq!(log.take(), [Err(Deadlock)]);
    gate.open();
}
