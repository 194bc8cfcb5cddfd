//! Operations that wait for positions, which order them and pass no failure on; and faults that
//! name the failure they come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use clika_executor::{
    Deadlock, Executor, Failure, Fault, Kind, Mark, Operation, Point, Position, Reason, Refused,
    Strand,
};

use super::support::{
    Drops, Gate, Log, count, enter, executor, failing, hold_workers, host, native, panic_quietly,
    reporting, rounds, soon, synchronize, threads, wait, workers,
};

/// The end of an operation on a strand of its own, which holds no worker while it is at the gate.
fn gated(executor: &Executor) -> (Gate, Position) {
    let gate = Gate::default();
    let end = {
        let gate = gate.clone();
        executor.strand(None).push_at(host(move || gate.pass()))
    };
    (gate, end.unwrap().position().clone())
}

/// Submits work behind `positions` that notes whether it ran.
fn push_after(
    strand: &Arc<Strand>,
    positions: impl IntoIterator<Item = Position>,
) -> (Point, Arc<AtomicBool>) {
    let ran = Arc::new(AtomicBool::new(false));
    let work = {
        let ran = ran.clone();
        native(move || ran.store(true, SeqCst))
    };
    (strand.push_at_after(positions, work).unwrap().0, ran)
}

#[test]
fn an_operation_runs_after_the_positions_that_it_waits_for() {
    let executor = executor();
    let strands: Vec<_> = (0..4).map(|_| executor.strand(None)).collect();
    let steps = Arc::new(AtomicUsize::new(0));
    let mut last = None;
    for n in 0..rounds(1000) {
        let steps = steps.clone();
        let strand = &strands[n % 7 % 4];
        let step = native(move || assert_eq!(steps.swap(n + 1, SeqCst), n));
        let n = strand.push_after(last.take(), step).unwrap().0;
        last = Some(Position::new(strand.clone(), n));
    }
    strands.iter().for_each(synchronize);
    assert_eq!(steps.load(SeqCst), rounds(1000));
    assert!(strands.iter().all(|strand| strand.failure().is_none()));
}

/// Each operation of a layer waits for all of the layer before.
#[test]
fn a_layer_of_strands_waits_for_the_whole_layer_before() {
    const WIDTH: usize = 5;
    let executor = executor();
    let strands: Vec<_> = (0..WIDTH).map(|_| executor.strand(None)).collect();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut before = Vec::new();
    for layer in 0..rounds(100) {
        let push = |strand: &Arc<Strand>| {
            let ran = ran.clone();
            let work = native(move || assert!(ran.fetch_add(1, SeqCst) >= layer * WIDTH));
            strand
                .push_at_after(before.iter().cloned(), work)
                .unwrap()
                .0
        };
        let ends: Vec<_> = strands.iter().map(push).collect();
        before = ends.iter().map(|end| end.position().clone()).collect();
    }
    strands.iter().for_each(synchronize);
    assert_eq!(ran.load(SeqCst), rounds(100) * WIDTH);
    assert!(strands.iter().all(|strand| strand.failure().is_none()));
}

#[test]
fn an_operation_waits_for_all_of_its_positions_in_whatever_order_they_come() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let executor = executor();
        let gates: Vec<_> = (0..3).map(|_| gated(&executor)).collect();
        let positions = gates.iter().map(|(_, position)| position.clone());
        let strand = executor.strand(None);
        let (end, ran) = push_after(&strand, positions);
        for at in order {
            assert!(!end.is_reached() && !ran.load(SeqCst));
            let (gate, position) = &gates[at];
            gate.open();
            assert!(position.wait().unwrap().until(soon()));
        }
        wait(&end);
        assert!(ran.load(SeqCst));
    }
}

#[test]
fn several_positions_take_one_number() {
    let executor = executor();
    let gates: Vec<_> = (0..3).map(|_| gated(&executor)).collect();
    let positions = || gates.iter().map(|(_, position)| position.clone());
    let strand = executor.strand(None);
    assert_eq!(strand.push_after(positions(), native(|| ())).unwrap().0, 2);
    assert_eq!(strand.pending(), 2);
    assert_eq!(strand.push_after(positions(), native(|| ())).unwrap().0, 4);
    assert_eq!(strand.push(native(|| ())).unwrap(), 5);
    assert_eq!(strand.pending(), 5);
    gates.iter().for_each(|(gate, _)| gate.open());
    synchronize(&strand);
    assert_eq!(strand.pending(), 0);
}

#[test]
fn a_position_that_is_reached_or_on_the_own_strand_takes_no_number() {
    let executor = executor();
    let (done, strand) = (executor.strand(None), executor.strand(None));
    let reached = done.push_at(native(|| ())).unwrap().position().clone();
    assert!(reached.wait().unwrap().until(soon()));
    let (gate, ahead) = gated(&executor);
    let held = hold_workers(&executor, workers());
    let own = |n| Position::new(strand.clone(), n);
    assert_eq!(strand.push_after([], native(|| ())).unwrap().0, 1);
    assert_eq!(strand.push_after([own(1)], native(|| ())).unwrap().0, 2);
    let twice = [reached.clone(), reached.clone()];
    assert_eq!(strand.push_after(twice, native(|| ())).unwrap().0, 3);
    assert_eq!(strand.push_after([own(9)], native(|| ())).unwrap().0, 4);
    assert_eq!(strand.pending(), 4);
    let mixed = [reached, ahead, own(2)];
    assert_eq!(strand.push_after(mixed, native(|| ())).unwrap().0, 6);
    held.open();
    gate.open();
    synchronize(&strand);
}

#[test]
fn a_position_may_move_along_its_timeline() {
    let executor = executor();
    let strand = executor.strand(Some("lathe"));
    synchronize(&strand);
    strand.push(native(|| ())).unwrap();
    synchronize(&strand);
    let mut position = Position::new(strand.clone(), 1);
    assert!(position.is_reached() && Arc::ptr_eq(position.strand(), &strand));
    position.move_to(2);
    assert!(!position.is_reached());
    assert_eq!(position.n(), 2);
    assert_eq!(format!("{position:?}"), "Position(lathe, 2)");
    strand.push(native(|| ())).unwrap();
    assert!(position.wait().unwrap().until(soon()));
}

#[test]
fn a_failure_passes_on_through_a_point_and_not_through_a_position() {
    let executor = executor();
    let (fails, orders, follows) = (
        executor.strand(None),
        executor.strand(None),
        executor.strand(None),
    );
    let held = hold_workers(&executor, workers());
    let failed = fails.push_at(failing("on purpose")).unwrap();
    let (ordered, ran) = push_after(&orders, [failed.position().clone()]);
    follows.wait_for(&failed).unwrap();
    let (followed, ran_behind) = push_after(&follows, [failed.position().clone()]);
    held.open();
    wait(&ordered);
    wait(&followed);
    assert!(ran.load(SeqCst) && ordered.failure().is_none() && orders.failure().is_none());
    assert!(!ran_behind.load(SeqCst));
    assert!(Arc::ptr_eq(
        &followed.failure().unwrap(),
        &failed.failure().unwrap()
    ));
    // Nor once it is reached.
    let (late, ran) = push_after(&orders, [failed.position().clone()]);
    wait(&late);
    assert!(ran.load(SeqCst) && late.failure().is_none());
}

/// What comes behind the acknowledgement relies on the wait.
#[test]
fn a_failed_strand_keeps_its_waits() {
    let executor = executor();
    let strand = executor.strand(None);
    wait(&strand.push_at(failing("on purpose")).unwrap());
    let (gate, position) = gated(&executor);
    let (end, ran) = push_after(&strand, [position]);
    assert!(!end.is_reached());
    gate.open();
    wait(&end);
    assert!(!ran.load(SeqCst) && end.failure().is_some());
}

#[test]
fn after_the_shutdown_nothing_is_submitted_behind_a_position() {
    let executor = executor();
    let (strand, inline) = (executor.strand(None), executor.inline_strand("inline"));
    let (gate, position) = gated(&executor);
    gate.await_waiting(1);
    executor.close();
    let drops = Drops::default();
    let probe = drops.probe();
    let refused = strand.push_after([position.clone()], native(move || drop(probe)));
    assert!(matches!(refused, Err(Refused::ShutDown)));
    assert_eq!(drops.count(), 1);
    let refused = strand.push_at_after([position.clone()], native(|| ()));
    assert!(matches!(refused, Err(Refused::ShutDown)));
    let refused = inline.visit_after([position]);
    assert!(matches!(refused, Err(Refused::ShutDown)));
    assert_eq!((strand.pending(), inline.pending()), (0, 0));
    assert!(strand.point().is_reached() && inline.point().is_reached());
    gate.open();
}

/// One position is buried by the shutdown, one is reached long after it.
#[test]
fn a_strand_parked_at_the_shutdown_is_dropped_and_wakes_everybody() {
    let executor = executor();
    let (gate, running) = gated(&executor);
    gate.await_waiting(1);
    let held = hold_workers(&executor, workers());
    let queued = executor.strand(None).push_at(native(|| ())).unwrap();
    let (parked, behind) = (executor.strand(None), executor.strand(None));
    let drops = Drops::default();
    let probe = drops.probe();
    let end = parked
        .push_at_after(
            [queued.position().clone(), running.clone()],
            native(move || drop(probe)),
        )
        .unwrap()
        .0;
    let (last, ran) = push_after(&behind, [end.position().clone()]);
    threads(|threads| {
        for point in [&end, &last] {
            threads.spawn(|| wait(point));
        }
        executor.close();
        assert!(queued.is_reached() && !running.is_reached());
        gate.open();
    });
    for point in [&end, &last] {
        let failure = point.failure().expect("dropped");
        assert!(matches!(failure.reason, Reason::ShutDown));
    }
    assert!(!ran.load(SeqCst));
    assert_eq!(
        (drops.count(), parked.pending(), behind.pending()),
        (1, 0, 0)
    );
    held.open();
}

#[test]
fn a_visit_waits_for_its_positions_and_takes_no_failure_from_them() {
    let executor = executor();
    let inline = executor.inline_strand("inline");
    let fails = executor
        .strand(None)
        .push_at(failing("on purpose"))
        .unwrap();
    let (gate, position) = gated(&executor);
    let positions = [fails.position().clone(), position];
    let visitor = inline.visit_after(positions).unwrap().unwrap().0;
    assert_eq!(visitor.point().n(), 2);
    assert!(!visitor.until(Some(Instant::now())));
    gate.open();
    assert!(visitor.until(soon()));
    assert!(fails.is_reached());
    let inside = visitor.enter().unwrap();
    assert_eq!(inline.inside(), Some(2));
    inside.finish(Ok(()));
    assert!(inline.failure().is_none());
    assert_eq!(inline.pending(), 0);
}

#[test]
fn a_visit_that_is_withdrawn_keeps_the_place_of_its_wait() {
    let executor = executor();
    let inline = executor.inline_strand("inline");
    let (gate, position) = gated(&executor);
    let withdrawn = inline.visit_after([position]).unwrap().unwrap().0;
    let end = withdrawn.point().clone();
    drop(withdrawn);
    assert!(!end.is_reached());
    gate.open();
    wait(&end);
    enter(&inline).finish(Ok(()));
    assert_eq!(inline.pending(), 0);
}

/// Runs `work` as the first operation of `strand`, once `gate` is open.
fn inside<R: Send + 'static>(
    strand: &Arc<Strand>,
    gate: &Gate,
    work: impl FnOnce() -> R + Send + 'static,
) -> (Point, Log<R>) {
    let (gate, log) = (gate.clone(), Log::new());
    let end = {
        let log = log.clone();
        strand.push_at(host(move || {
            gate.pass();
            log.add(work());
        }))
    };
    (end.unwrap(), log)
}

/// Waits inside an operation.
fn wait_inside(position: &Position) -> Result<bool, Deadlock> {
    Ok(position.wait()?.until(soon()))
}

/// Through several strands, and the position that leads back is not the first of its operation.
#[test]
fn promise_09_a_cycle_through_positions_is_refused() {
    let executor = executor();
    let first = executor.strand(None);
    let (start, (held, other)) = (Gate::default(), gated(&executor));
    let strands: Vec<_> = (0..3).map(|_| executor.strand(None)).collect();
    let target = Position::new(strands[2].clone(), 2);
    let (end, log) = inside(&first, &start, move || wait_inside(&target));
    let mut back = end.position().clone();
    for strand in &strands {
        let (point, _) = push_after(strand, [other.clone(), back]);
        assert_eq!(point.n(), 2);
        back = point.position().clone();
    }
    start.open();
    wait(&end);
    assert_eq!(log.take(), [Err(Deadlock)]);
    held.open();
    strands.iter().for_each(synchronize);
    assert!(strands.iter().all(|strand| strand.failure().is_none()));
}

#[test]
fn promise_09_a_visit_behind_the_operation_it_is_made_in_is_refused() {
    let executor = executor();
    let (strand, inline) = (executor.strand(None), executor.inline_strand("inline"));
    let (start, own) = (Gate::default(), Position::new(strand.clone(), 1));
    let visited = inline.clone();
    let visit = move || visited.visit_after([own]).unwrap().map(drop);
    let (end, log) = inside(&strand, &start, visit);
    start.open();
    wait(&end);
    assert_eq!(log.take(), [Err(Deadlock)]);
    synchronize(&inline);
    enter(&inline).finish(Ok(()));
}

/// The operation behind the awaited one waits for the waiting operation: no cycle.
#[test]
fn promise_09_a_position_behind_the_awaited_one_is_no_cycle() {
    let executor = executor();
    let (first, second) = (executor.strand(None), executor.strand(None));
    let (start, (gate, position)) = (Gate::default(), gated(&executor));
    let awaited = second.push_at_after([position], native(|| ())).unwrap().0;
    let target = awaited.position().clone();
    let (end, log) = inside(&first, &start, move || wait_inside(&target));
    let (behind, ran) = push_after(&second, [end.position().clone()]);
    start.open();
    gate.open();
    wait(&behind);
    assert_eq!(log.take(), [Ok(true)]);
    assert!(ran.load(SeqCst));
}

/// The iterator is the caller's: it may use the very strand, and panic.
#[test]
fn positions_are_made_while_the_strand_is_free() {
    let executor = executor();
    let strand = executor.strand(None);
    let (gate, position) = gated(&executor);
    let uses = std::iter::once_with(|| strand.point().position().clone());
    assert_eq!(strand.push_after(uses, native(|| ())).unwrap().0, 1);
    let panics = [0, 1].into_iter().map(|n| match n {
        0 => position.clone(),
        _ => panic_quietly("on purpose"),
    });
    let push = std::panic::AssertUnwindSafe(|| strand.push_after(panics, native(|| ())));
    assert!(std::panic::catch_unwind(push).is_err());
    assert_eq!(strand.push(native(|| ())).unwrap(), 2);
    synchronize(&strand);
    gate.open();
}

/// An operation that ends with a fault of its own making.
struct Faulty<F>(F);

impl<F: FnOnce() -> Fault + Send + 'static> Operation for Faulty<F> {
    const KIND: Kind = Kind::Native;

    fn run(self) -> Result<(), Fault> {
        Err(self.0())
    }
}

fn own_fault() -> Fault {
    Fault::new(Reason::Panicked("on purpose".into()), None)
}

#[test]
fn promise_07_a_fault_that_is_passed_on_fails_the_strand_with_the_same_failure() {
    let log = Log::new();
    let executor = {
        let log = log.clone();
        reporting(workers(), move |failure| log.add(failure.clone()))
    };
    let (fails, follows) = (executor.strand(Some("origin")), executor.strand(None));
    let failed = fails.push_at(Faulty(own_fault)).unwrap();
    wait(&failed);
    let failure = failed.failure().unwrap();
    let passed = failure.clone();
    let end = follows.push_at(Faulty(|| Fault::passed(passed))).unwrap();
    let (behind, ran) = push_after(&follows, []);
    wait(&behind);
    assert!(!ran.load(SeqCst));
    for point in [&end, &behind] {
        assert!(Arc::ptr_eq(&point.failure().unwrap(), &failure));
    }
    assert_eq!(failure.origin.strand, "origin");
    assert!(executor.drain(soon()));
    fails.orphan();
    follows.orphan();
    let reported = log.take();
    assert_eq!(reported.len(), 1);
    assert!(Arc::ptr_eq(&reported[0], &failure));
    assert!(executor.take_unacknowledged().is_empty());
}

#[test]
fn promise_07_a_failure_that_is_passed_on_is_left_unacknowledged_once() {
    let executor = executor();
    let failed = executor.strand(None).push_at(Faulty(own_fault)).unwrap();
    wait(&failed);
    let failure = failed.failure().unwrap();
    for _ in 0..3 {
        let passed = failure.clone();
        let strand = executor.strand(None);
        wait(&strand.push_at(Faulty(|| Fault::passed(passed))).unwrap());
    }
    let left = executor.take_unacknowledged();
    assert_eq!(left.len(), 1);
    assert!(Arc::ptr_eq(&left[0], &failure));
}

/// What an heir saw: the failure, and whether the operation counted as done.
type Inheritance = Log<(Arc<Failure>, bool)>;

fn heir(point: &Point, log: &Inheritance) -> impl FnOnce(&Arc<Failure>) + use<> {
    let (point, log) = (point.clone(), log.clone());
    move |failure| log.add((failure.clone(), point.is_reached()))
}

#[track_caller]
fn expect_inherited(log: &Inheritance, point: &Point) {
    let inherited = log.take();
    assert_eq!(inherited.len(), 1);
    let (failure, was_reached) = &inherited[0];
    assert!(Arc::ptr_eq(failure, &point.failure().unwrap()));
    assert!(!was_reached);
}

#[test]
fn promise_07_an_heir_is_told_once_before_the_operation_counts_as_done() {
    let executor = executor();
    let log = Inheritance::new();
    let strand = executor.strand(None);
    let told = heir(&strand.point().at(1), &log);
    let end = strand
        .push_at(Faulty(|| own_fault().left_to(told)))
        .unwrap();
    wait(&end);
    expect_inherited(&log, &end);

    let (passed, strand) = (end.failure().unwrap(), executor.strand(None));
    let told = heir(&strand.point().at(1), &log);
    let fault = || Fault::passed(passed).left_to(told);
    let end = strand.push_at(Faulty(fault)).unwrap();
    wait(&end);
    expect_inherited(&log, &end);

    let inline = executor.inline_strand("inline");
    let inside = enter(&inline);
    let end = inline.point();
    inside.finish(Err(own_fault().left_to(heir(&end, &log))));
    assert!(end.is_reached());
    expect_inherited(&log, &end);
}

#[test]
fn promise_07_each_of_several_heirs_is_told_in_their_order_though_one_panics() {
    let executor = executor();
    let (tell, told) = std::sync::mpsc::channel();
    let strand = executor.strand(None);
    let fault = move || {
        let (first, third) = (tell.clone(), tell);
        let fault = own_fault().left_to(move |_| first.send(1).unwrap());
        let fault = fault.left_to(|_| panic_quietly("the second"));
        fault.left_to(move |_| third.send(3).unwrap())
    };
    wait(&strand.push_at(Faulty(fault)).unwrap());
    assert_eq!(told.iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn promise_08_an_heir_that_panics_harms_nobody() {
    let executor = executor();
    let strand = executor.strand(None);
    let fault = || own_fault().left_to(|_| panic_quietly("the heir"));
    let end = strand.push_at(Faulty(fault)).unwrap();
    let called = Arc::new(AtomicUsize::new(0));
    let mark = called.clone();
    strand.push(Mark::new(move || count(&mark))).unwrap();
    synchronize(&strand);
    assert!(end.failure().is_some());
    assert_eq!(called.load(SeqCst), 1);
    wait(&executor.strand(None).push_at(native(|| ())).unwrap());
}

#[test]
fn promise_07_a_failure_that_is_only_made_fails_nothing() {
    let executor = executor();
    let strand = executor.strand(Some("quiet"));
    let failure = strand.failure_of(7, own_fault());
    assert_eq!(
        (failure.origin.strand.as_str(), failure.origin.operation),
        ("quiet", 7)
    );
    assert_eq!(failure.reason.to_string(), "panicked: on purpose");
    let again = strand.failure_of(8, Fault::passed(failure.clone()));
    assert!(Arc::ptr_eq(&failure, &again));
    assert!(strand.failure().is_none());
    let (end, ran) = push_after(&strand, []);
    wait(&end);
    assert!(ran.load(SeqCst) && end.failure().is_none());
    assert!(executor.take_unacknowledged().is_empty());
}
