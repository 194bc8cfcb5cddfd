//! Programs whose threads call freely: what must hold in every order.

use std::collections::{BTreeSet, HashMap};

use clika_executor::sync::Mutex;
use clika_runtime::{Device, Error, Event, Future, Stream};
use proptest::prelude::{Just, any, prop_oneof};
use proptest::strategy::Strategy;
use proptest::test_runner::TestCaseError;

use crate::check::check;
use crate::journal::{Journal, Runs};
use crate::work::{Ends, Id, Work, any_work};
use crate::{reports, stage};

/// Places for events that all threads share.
const SLOTS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Submit(usize, Work),
    Call(usize, Work),
    Cancel,
    Take,
    Record(usize, usize),
    WaitEvent(usize, usize),
    WaitStream(usize, usize),
    Synchronize(usize),
}

/// The streams, the first of them the default one, and the steps of each thread.
#[derive(Clone, Debug)]
struct Program {
    streams: usize,
    threads: Vec<Vec<Step>>,
}

fn any_step(streams: usize) -> impl Strategy<Value = Step> {
    let stream = move || 0..streams;
    prop_oneof![
        8 => (stream(), any_work(12)).prop_map(|(stream, work)| Step::Submit(stream, work)),
        4 => (stream(), any_work(12)).prop_map(|(stream, work)| Step::Call(stream, work)),
        2 => Just(Step::Cancel),
        2 => Just(Step::Take),
        2 => (stream(), 0..SLOTS).prop_map(|(stream, slot)| Step::Record(stream, slot)),
        2 => (stream(), 0..SLOTS).prop_map(|(stream, slot)| Step::WaitEvent(stream, slot)),
        3 => (stream(), stream()).prop_map(|(stream, other)| Step::WaitStream(stream, other)),
        1 => stream().prop_map(Step::Synchronize),
    ]
}

fn any_program() -> impl Strategy<Value = Program> {
    (2..=4_usize, 2..=3_usize, any::<bool>()).prop_flat_map(|(streams, threads, fails)| {
        let steps = proptest::collection::vec(any_step(streams), 1..40);
        proptest::collection::vec(steps, threads).prop_map(move |mut threads| {
            if !fails {
                threads.iter_mut().flatten().for_each(end_well);
            }
            Program { streams, threads }
        })
    })
}

fn end_well(step: &mut Step) {
    if let Step::Submit(_, work) | Step::Call(_, work) = step {
        work.ends = Ends::Well;
    }
}

/// What all threads share.
struct World {
    streams: Vec<Stream>,
    slots: Mutex<[Option<Event>; SLOTS]>,
    journal: Journal,
}

/// What one thread knows of what it did.
#[derive(Default)]
struct Account {
    /// Its submissions to each stream, in order.
    submitted: HashMap<usize, Vec<Id>>,
    failing: BTreeSet<Id>,
    cancelled: BTreeSet<Id>,
    /// Operations whose failures it got in a way that acknowledges.
    acknowledged: BTreeSet<Id>,
    /// Those of the first list are to end before those behind the given place of a stream's list.
    waits: Vec<(Vec<Id>, usize, usize)>,
    /// Whatever it submitted before to that stream had ended.
    ended: Vec<Id>,
    futures: Vec<(Id, Future<u16>)>,
}

impl Account {
    fn of(&self, stream: usize) -> Vec<Id> {
        self.submitted.get(&stream).cloned().unwrap_or_default()
    }

    fn add(&mut self, stream: usize, work: Work) -> Id {
        let id = Id::next();
        self.submitted.entry(stream).or_default().push(id);
        if work.ends != Ends::Well {
            self.failing.insert(id);
        }
        id
    }

    /// A failure that a call returned, in a way that acknowledges it.
    fn returned<T>(&mut self, outcome: Result<T, Error>) {
        match outcome {
            Err(error) if error.is_operation() => {
                self.acknowledged.insert(Id::in_error(&error).unwrap());
            }
            Err(error) => assert!(error.is_cancelled(), "{error:?}"),
            Ok(_) => {}
        }
    }

    fn take_step(&mut self, step: &Step, world: &World) {
        match *step {
            Step::Submit(stream, work) => self.submit(stream, work, world),
            Step::Call(stream, work) => self.call(stream, work, world),
            Step::Cancel => {
                if let Some((id, future)) = self.futures.last()
                    && future.cancel()
                {
                    self.cancelled.insert(*id);
                }
            }
            Step::Take => {
                if !self.futures.is_empty() {
                    let (_, future) = self.futures.remove(0);
                    self.returned(future.wait());
                }
            }
            Step::Record(stream, slot) => {
                let event = world.streams[stream].record_event();
                world.slots.lock()[slot] = Some(event);
            }
            Step::WaitEvent(stream, slot) => {
                let slots = world.slots.lock();
                let event = slots[slot].clone();
                drop(slots);
                event
                    .iter()
                    .for_each(|event| world.streams[stream].wait_event(event).unwrap());
            }
            Step::WaitStream(stream, other) => {
                world.streams[stream]
                    .wait_stream(&world.streams[other])
                    .unwrap();
                if stream != other {
                    self.waits
                        .push((self.of(other), stream, self.of(stream).len()));
                }
            }
            Step::Synchronize(stream) => self.synchronize(stream, world),
        }
    }

    fn submit(&mut self, stream: usize, work: Work, world: &World) {
        let id = self.add(stream, work);
        let operation = world.journal.operation(id, work);
        let operation = || operation().map(drop);
        let handle = &world.streams[stream];
        let outcome = if work.host {
            handle.submit_host(operation)
        } else {
            handle.submit(operation)
        };
        self.returned(outcome);
    }

    fn call(&mut self, stream: usize, work: Work, world: &World) {
        let id = self.add(stream, work);
        let operation = world.journal.operation(id, work);
        let operation = move || operation().unwrap_or_else(|text| panic!("{text}"));
        let handle = &world.streams[stream];
        let future = if work.host {
            handle.call_host(operation)
        } else {
            handle.call(operation)
        };
        self.futures.push((id, future.unwrap()));
    }

    fn synchronize(&mut self, stream: usize, world: &World) {
        self.returned(world.streams[stream].synchronize());
        let runs = world.journal.read().unwrap();
        let own = self.of(stream);
        self.ended
            .extend(own.into_iter().filter(|&id| runs.ran(id)));
        assert!(
            self.ended.iter().all(|&id| runs.has_ended(id)),
            "a wait did not cover its past"
        );
    }

    /// Checks what this thread can know of the order.
    fn check(&self, runs: &Runs, fails: bool) -> Result<(), String> {
        for own in self.submitted.values() {
            runs.in_a_row(own)?;
            for &id in own {
                let (ran, cancelled) = (runs.ran(id), self.cancelled.contains(&id));
                if (ran && cancelled) || (!ran && !cancelled && !fails) {
                    return Err(format!("{id:?}: ran {ran}, cancelled {cancelled}"));
                }
            }
        }
        let mut waits = self.waits.iter();
        waits.try_for_each(|(first, stream, from)| runs.in_order(first, &self.of(*stream)[*from..]))
    }
}

fn play(steps: &[Step], world: &World) -> Account {
    let mut account = Account::default();
    steps.iter().for_each(|step| account.take_step(step, world));
    account.futures.clear();
    account
}

/// Acknowledges what is left, until the stream is well.
fn settle(stream: &Stream, acknowledged: &mut BTreeSet<Id>) {
    while let Err(error) = stream.synchronize() {
        assert!(error.is_operation(), "{error:?}");
        acknowledged.insert(Id::in_error(&error).unwrap());
    }
}

fn run(program: &Program) -> Result<(), TestCaseError> {
    let mut streams = vec![Stream::default_stream(Device::cpu()).unwrap()];
    let _ = streams[0].synchronize();
    streams.resize_with(program.streams, || Stream::create(Device::cpu()).unwrap());
    let world = World {
        streams,
        slots: Mutex::default(),
        journal: Journal::default(),
    };
    let accounts = stage::racing(&program.threads, |steps| play(steps, &world));
    let mut acknowledged: BTreeSet<Id> = accounts
        .iter()
        .flat_map(|a| a.acknowledged.clone())
        .collect();
    world
        .streams
        .iter()
        .for_each(|stream| settle(stream, &mut acknowledged));
    let runs = world.journal.read().map_err(TestCaseError::fail)?;
    let failing: BTreeSet<Id> = accounts.iter().flat_map(|a| a.failing.clone()).collect();
    for account in &accounts {
        account
            .check(&runs, !failing.is_empty())
            .map_err(TestCaseError::fail)?;
    }
    // Work that failed was the first to fail in its epoch, so somebody must have got just that.
    let failed: BTreeSet<Id> = failing.into_iter().filter(|&id| runs.ran(id)).collect();
    proptest::prop_assert_eq!(failed, acknowledged);
    drop(world);
    proptest::prop_assert_eq!(reports::take(), []);
    Ok(())
}

#[test]
fn promise_01_to_10_programs_whose_threads_race_keep_what_holds_in_every_order() {
    reports::collect();
    check(1_000, any_program(), run);
}
