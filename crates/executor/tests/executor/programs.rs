//! Random programs against a sequential model.
//!
//! A program is one list of actions. Each belongs to a strand, each strand to a thread, and the
//! threads carry out their own actions at the same time. An action only refers to points that
//! actions before it made, so the list itself is one order in which everything could have
//! happened; the model carries it out in that order and says for each operation whether it runs,
//! and what it can rely on having happened. Everything else must not depend on timing.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

use clika_executor::sync::Mutex;
use clika_executor::{Executor, Failure, Fault, Host, Mark, Native, Point, Reason, Strand};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::support::{
    Drops, Probe, Watchdog, count, eventually, let_threads_end, panic_quietly, reporting, rounds,
    setting, soon, synchronize, threads, wait, workers,
};

const STRANDS: usize = 4;
/// Its operations are run by the thread that submits them.
const INLINE: usize = 3;

#[derive(Clone, Debug)]
enum Action {
    /// Submits an operation, which may wait for an earlier point while it runs.
    Push {
        strand: usize,
        work: Work,
        ends: Ends,
        large: bool,
        inside: Option<usize>,
    },
    /// Takes the point that the strand is at.
    Record { strand: usize },
    /// Makes the strand wait for an earlier point.
    WaitFor { strand: usize, point: usize },
    /// Waits for the strand, and acknowledges what failed.
    Synchronize { strand: usize },
    /// Lets go of the strand and makes another.
    Renew { strand: usize },
    /// Looks at an earlier point, and changes nothing.
    Look {
        strand: usize,
        point: usize,
        how: Look,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Native,
    Host,
    Mark,
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    Well,
    InAnError,
    InAPanic,
}

#[derive(Clone, Copy, Debug)]
enum Look {
    Poll,
    Wait,
    Call,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let strand = 0..STRANDS;
    let work = prop_oneof![4 => Just(Work::Native), 2 => Just(Work::Host), 1 => Just(Work::Mark)];
    let ends =
        prop_oneof![8 => Just(Ends::Well), 1 => Just(Ends::InAnError), 1 => Just(Ends::InAPanic)];
    let inside = prop_oneof![4 => Just(None), 1 => any::<usize>().prop_map(Some)];
    let look = prop_oneof![Just(Look::Poll), Just(Look::Wait), Just(Look::Call)];
    let push = (strand.clone(), work, ends, any::<bool>(), inside).prop_map(
        |(strand, work, ends, large, inside)| Action::Push {
            strand,
            work,
            ends,
            large,
            inside,
        },
    );
    let action = prop_oneof![
        8 => push,
        2 => strand.clone().prop_map(|strand| Action::Record { strand }),
        4 => (strand.clone(), any::<usize>())
            .prop_map(|(strand, point)| Action::WaitFor { strand, point }),
        2 => strand.clone().prop_map(|strand| Action::Synchronize { strand }),
        1 => strand.clone().prop_map(|strand| Action::Renew { strand }),
        2 => (strand, any::<usize>(), look)
            .prop_map(|(strand, point, how)| Action::Look { strand, point, how }),
    ];
    prop::collection::vec(action, 1..40)
}

impl Action {
    fn strand(&self) -> usize {
        match *self {
            Self::Push { strand, .. }
            | Self::Record { strand }
            | Self::WaitFor { strand, .. }
            | Self::Synchronize { strand }
            | Self::Renew { strand }
            | Self::Look { strand, .. } => strand,
        }
    }

    fn makes_a_point(&self) -> bool {
        matches!(self, Self::Push { .. } | Self::Record { .. })
    }
}

/// What the model says.
struct Plan {
    actions: Vec<Action>,
    /// For each action, the earlier action whose point it refers to.
    refers: Vec<Option<usize>>,
    fates: Vec<Fate>,
}

#[derive(Clone, Debug, Default)]
struct Fate {
    /// Whether the operation runs.
    runs: bool,
    /// The action whose failure its point covers.
    failure: Option<usize>,
    /// The operations that it can rely on having ended.
    sees: Clock,
    /// Which of the strands in this place it was, as they are renewed.
    life: (usize, usize),
}

/// Of each strand there ever was, the last operation that ran and is known to have ended.
type Clock = HashMap<(usize, usize), usize>;

fn merge(clock: &mut Clock, other: &Clock) {
    for (strand, operation) in other {
        let known = clock.entry(*strand).or_insert(*operation);
        *known = (*known).max(*operation);
    }
}

#[derive(Clone, Default)]
struct Line {
    life: usize,
    failure: Option<usize>,
    clock: Clock,
}

impl Plan {
    /// Carries the program out, one action after the other.
    fn of(actions: Vec<Action>, threads: usize) -> Self {
        let mut points = Vec::new();
        let mut plan = Self {
            actions,
            refers: Vec::new(),
            fates: Vec::new(),
        };
        let mut lines = vec![Line::default(); STRANDS];
        let mut known = vec![Clock::new(); threads];
        for at in 0..plan.actions.len() {
            let refers = plan.reference(at, &points);
            let strand = plan.actions[at].strand();
            let fate = plan.fate(at, refers, &mut lines[strand], &mut known[strand % threads]);
            if plan.actions[at].makes_a_point() {
                points.push(at);
            }
            plan.refers.push(refers);
            plan.fates.push(fate);
        }
        plan
    }

    fn reference(&self, at: usize, points: &[usize]) -> Option<usize> {
        let wanted = match self.actions[at] {
            Action::Push { inside, .. } => inside?,
            Action::WaitFor { point, .. } | Action::Look { point, .. } => point,
            _ => return None,
        };
        (!points.is_empty()).then(|| points[wanted % points.len()])
    }

    fn fate(&self, at: usize, refers: Option<usize>, line: &mut Line, known: &mut Clock) -> Fate {
        let strand = self.actions[at].strand();
        let life = (strand, line.life);
        let mut fate = Fate {
            life,
            ..Fate::default()
        };
        let referred = refers.map(|point| &self.fates[point]);
        match &self.actions[at] {
            Action::Push { work, ends, .. } => {
                let mark = *work == Work::Mark && strand != INLINE;
                merge(&mut line.clock, known);
                fate.runs = mark || line.failure.is_none();
                fate.sees = line.clock.clone();
                if fate.runs {
                    if !mark && let Some(point) = referred {
                        merge(&mut line.clock, &point.sees);
                    }
                    line.clock.insert(life, at);
                    if !mark && !matches!(ends, Ends::Well) {
                        line.failure = Some(at);
                    }
                }
                if strand == INLINE {
                    merge(known, &line.clock);
                }
            }
            Action::WaitFor { .. } => {
                if let Some(point) = referred.filter(|point| point.life != life) {
                    merge(&mut line.clock, &point.sees);
                    line.failure = line.failure.or(point.failure);
                }
            }
            Action::Synchronize { .. } => {
                merge(known, &line.clock);
                fate.failure = line.failure.take();
                return fate;
            }
            Action::Renew { .. } => {
                *line = Line {
                    life: line.life + 1,
                    ..Line::default()
                };
                return fate;
            }
            Action::Record { .. } | Action::Look { .. } => {}
        }
        fate.failure = line.failure;
        if self.actions[at].makes_a_point() {
            // What is seen by whoever waits for the point made here.
            let own = fate.sees;
            fate.sees = line.clock.clone();
            merge(&mut fate.sees, &own);
        }
        fate
    }
}

/// A program under way.
struct Run {
    plan: Plan,
    threads: usize,
    executor: Executor,
    points: Vec<Mutex<Option<Point>>>,
    ended: Vec<AtomicBool>,
    ran: Vec<AtomicUsize>,
    drops: Vec<Drops>,
    /// Whether an operation is under way, for each strand there ever was.
    busy: Vec<AtomicBool>,
    calls: [AtomicUsize; 2],
    wrong: Mutex<Vec<String>>,
}

impl Run {
    fn new(plan: Plan, threads: usize, workers: usize) -> Arc<Self> {
        let size = plan.actions.len();
        let reported = Mutex::new(Vec::new());
        let executor = reporting(workers, move |failure| {
            let mut reported = reported.lock();
            assert!(
                !reported.iter().any(|other| Arc::ptr_eq(other, failure)),
                "reported twice"
            );
            reported.push(failure.clone());
        });
        Arc::new(Self {
            plan,
            threads,
            executor,
            points: (0..size).map(|_| Mutex::default()).collect(),
            ended: (0..size).map(|_| AtomicBool::new(false)).collect(),
            ran: (0..size).map(|_| AtomicUsize::new(0)).collect(),
            drops: (0..size).map(|_| Drops::default()).collect(),
            busy: (0..STRANDS * (size + 1))
                .map(|_| AtomicBool::new(false))
                .collect(),
            calls: Default::default(),
            wrong: Mutex::default(),
        })
    }

    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.lock().push(what());
        }
    }

    fn make_strand(&self, at: usize) -> Arc<Strand> {
        match at {
            INLINE => self.executor.inline_strand("inline"),
            _ => self.executor.strand(None),
        }
    }

    /// One thread's part of the program, and the strands it has at the end.
    fn carry_out(self: &Arc<Self>, thread: usize) {
        let mut strands: Vec<_> = (0..STRANDS).map(|at| self.make_strand(at)).collect();
        for at in 0..self.plan.actions.len() {
            let strand = self.plan.actions[at].strand();
            if strand % self.threads == thread {
                self.act(at, &mut strands[strand]);
            }
        }
        strands.iter().for_each(synchronize);
        strands.iter().for_each(|strand| strand.orphan());
    }

    fn act(self: &Arc<Self>, at: usize, strand: &mut Arc<Strand>) {
        match self.plan.actions[at] {
            Action::Push { work, large, .. } => self.push(at, strand, work, large),
            Action::Record { .. } => self.publish(at, strand.point()),
            Action::WaitFor { .. } => {
                if let Some(point) = self.referred(at) {
                    strand.wait_for(&point).unwrap();
                }
            }
            Action::Synchronize { .. } => {
                let point = strand.point();
                wait(&point);
                self.expect_failure(at, &point);
                point.acknowledge();
            }
            Action::Renew { strand: place } => {
                strand.orphan();
                *strand = self.make_strand(place);
            }
            Action::Look { how, .. } => self.look(at, how),
        }
    }

    fn publish(&self, at: usize, point: Point) {
        assert!(self.points[at].lock().replace(point).is_none());
    }

    /// What the action has published so far.
    fn published(&self, at: usize) -> Option<Point> {
        self.points[at].lock().clone()
    }

    /// The point that the action refers to, as soon as the other thread has made it.
    fn referred(&self, at: usize) -> Option<Point> {
        let other = self.plan.refers[at]?;
        eventually(|| self.published(other).is_some());
        self.published(other)
    }

    fn push(self: &Arc<Self>, at: usize, strand: &Arc<Strand>, work: Work, large: bool) {
        let inside = self.referred(at);
        let (run, probe) = (self.clone(), self.drops[at].probe());
        if strand.is_inline() {
            return self.visit(at, strand, inside, probe);
        }
        let body = move || run.body(at, inside, probe);
        let point = match (work, large) {
            (Work::Mark, _) => strand.push_at(Mark::new(move || drop(body()))),
            (Work::Native, false) => strand.push_at(Native::new(body, None)),
            (Work::Host, false) => strand.push_at(Host::new(body, None)),
            (Work::Native, true) => strand.push_at(Native::new(with_ballast(body), None)),
            (Work::Host, true) => strand.push_at(Host::new(with_ballast(body), None)),
        };
        self.publish(at, point.unwrap());
    }

    fn visit(&self, at: usize, strand: &Arc<Strand>, inside: Option<Point>, probe: Probe) {
        let visitor = strand.visit().unwrap().unwrap();
        self.publish(at, visitor.point().clone());
        assert!(visitor.until(soon()), "the turn never came");
        match visitor.enter() {
            Err(_skipped) => drop(probe),
            Ok(turn) => {
                let outcome = catch_unwind(AssertUnwindSafe(|| self.body(at, inside, probe)))
                    .unwrap_or_else(|payload| Err(Reason::from_panic(payload)));
                turn.finish(outcome.map_err(|reason| Fault::new(reason, None)));
            }
        }
    }

    /// What every operation does: it looks at what it can rely on, and ends as planned.
    fn body(&self, at: usize, inside: Option<Point>, _probe: Probe) -> Result<(), Reason> {
        let Action::Push {
            strand, work, ends, ..
        } = self.plan.actions[at]
        else {
            unreachable!()
        };
        let mark = work == Work::Mark && strand != INLINE;
        let (place, life) = self.plan.fates[at].life;
        let busy = &self.busy[STRANDS * life + place];
        self.check(!busy.swap(true, SeqCst), || {
            format!("action {at} overlaps with another of its strand")
        });
        count(&self.ran[at]);
        if let Some(point) = inside.filter(|_| !mark) {
            let ended = point.wait().map(|mut wait| wait.until(soon()));
            self.check(ended == Ok(true), || {
                format!("action {at} waits inside: {ended:?}")
            });
        }
        for operation in self.plan.fates[at]
            .sees
            .values()
            .filter(|operation| **operation != at)
        {
            let seen = self.ended[*operation].load(Relaxed);
            self.check(seen, || {
                format!("action {at} does not see action {operation}")
            });
        }
        self.ended[at].store(true, Relaxed);
        busy.store(false, SeqCst);
        match ends {
            _ if mark => Ok(()),
            Ends::Well => Ok(()),
            Ends::InAnError => Err(Reason::Foreign(Box::new(at), "it was told to".to_owned())),
            Ends::InAPanic => panic_quietly(at.to_string()),
        }
    }

    fn look(self: &Arc<Self>, at: usize, how: Look) {
        let Some(other) = self.plan.refers[at] else {
            return;
        };
        let Some(point) = self.published(other) else {
            return;
        };
        match how {
            Look::Poll => drop(point.wait().unwrap().until(Some(Instant::now()))),
            Look::Wait => wait(&point),
            Look::Call => {
                count(&self.calls[0]);
                let (run, point) = (self.clone(), point.clone());
                point.clone().when_reached(move || {
                    count(&run.calls[1]);
                    run.expect_failure(other, &point);
                });
            }
        }
        if point.is_reached() {
            self.expect_failure(other, &point);
        }
    }

    fn expect_failure(&self, at: usize, point: &Point) {
        let (found, expected) = (
            point.failure().map(|why| origin(&why)),
            self.plan.fates[at].failure,
        );
        self.check(found == expected, || {
            format!("action {at}: failure {found:?}, not {expected:?}")
        });
    }

    /// Everything has ended: was it as planned?
    fn verify(&self) {
        assert!(self.executor.drain(soon()));
        for at in 0..self.plan.actions.len() {
            let (fate, ran) = (&self.plan.fates[at], self.ran[at].load(SeqCst));
            self.check(ran == usize::from(fate.runs), || {
                format!("action {at} ran {ran} times")
            });
            if matches!(self.plan.actions[at], Action::Push { .. }) {
                let drops = self.drops[at].count();
                self.check(drops == 1, || {
                    format!("action {at} was dropped {drops} times")
                });
            }
            if let Some(point) = self.published(at) {
                self.expect_failure(at, &point);
            }
        }
        assert_eq!(
            self.calls[0].load(SeqCst),
            self.calls[1].load(SeqCst),
            "calls were lost"
        );
        let wrong = self.wrong.lock();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

fn with_ballast(
    body: impl FnOnce() -> Result<(), Reason> + Send + 'static,
) -> impl FnOnce() -> Result<(), Reason> + Send + 'static {
    let ballast = [1_u64; 100];
    move || {
        assert_eq!(ballast.iter().sum::<u64>(), 100);
        body()
    }
}

/// The action that failed.
fn origin(failure: &Failure) -> usize {
    match &failure.reason {
        Reason::Panicked(text) => text.parse().unwrap(),
        Reason::Foreign(at, _) => *at.downcast_ref().unwrap(),
        reason => panic!("not one of ours: {reason}"),
    }
}

#[test]
fn promise_01_05_06_07_09_random_programs_do_what_the_model_says() {
    let seed = setting("CLIKA_SEED").unwrap_or_else(|| RandomState::new().hash_one(()));
    println!("CLIKA_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: rounds(4000) as u32,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let programs = (
        actions(),
        1..4_usize,
        prop_oneof![Just(workers()), 1..4_usize],
    );
    TestRunner::new_with_rng(config, rng)
        .run(&programs, |(actions, count, workers)| {
            let _watchdog =
                Watchdog::new(format!("{count} threads, {workers} workers: {actions:#?}"));
            let run = Run::new(Plan::of(actions, count), count, workers);
            threads(|threads| {
                for thread in 0..count {
                    let run = &run;
                    threads.spawn(move || run.carry_out(thread));
                }
            });
            run.verify();
            Ok(())
        })
        .unwrap();
    let_threads_end();
}
