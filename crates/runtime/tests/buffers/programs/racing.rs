//! Programs whose threads call freely: what must hold in every order.
//!
//! Every buffer is a counter, written all over its bytes. Nothing but adding to it is done, so no
//! increment may get lost, no read may see half of one, and no thread may see it go back.

use std::collections::HashMap;

use clika_runtime::{Buffer, Future, Stream};
use proptest::prelude::{any, prop_oneof};
use proptest::strategy::Strategy;
use proptest::test_runner::TestCaseError;

use super::hush;
use crate::check::check;
use crate::process::{AS_IT_IS, alone};
use crate::{CPU, default_stream, live_bytes, stage, stream};

#[derive(Clone, Debug)]
enum Step {
    /// Adds to one, two or three of them, in this order of arguments.
    Add(usize, Vec<usize>, bool),
    Kernel(usize, usize),
    /// Reads in the order of the stream, and compares two of them.
    Look(usize, usize, usize),
    CopyOut(usize, usize),
    /// Through a temporary, which is dropped at once.
    CopyAside(usize, usize),
    View(usize),
    Take,
    Synchronize(usize),
}

#[derive(Clone, Debug)]
struct Program {
    streams: usize,
    /// The counters' sizes in words.
    sizes: Vec<usize>,
    threads: Vec<Vec<Step>>,
}

fn any_step(streams: usize, buffers: usize) -> impl Strategy<Value = Step> {
    let (s, b) = (move || 0..streams, move || 0..buffers);
    let some = move || {
        let all: Vec<usize> = (0..buffers).collect();
        let shuffled = proptest::strategy::Strategy::prop_shuffle(proptest::strategy::Just(all));
        (shuffled, 1..=buffers).prop_map(|(mut all, few)| {
            all.truncate(few);
            all
        })
    };
    prop_oneof![
        8 => (s(), some(), any::<bool>()).prop_map(|(s, some, host)| Step::Add(s, some, host)),
        3 => (s(), b()).prop_map(|(s, b)| Step::Kernel(s, b)),
        2 => (s(), b(), b()).prop_map(|(s, a, b)| Step::Look(s, a, b)),
        3 => (s(), b()).prop_map(|(s, b)| Step::CopyOut(s, b)),
        2 => (s(), b()).prop_map(|(s, b)| Step::CopyAside(s, b)),
        1 => b().prop_map(Step::View),
        1 => proptest::strategy::Just(Step::Take),
        1 => s().prop_map(Step::Synchronize),
    ]
}

fn any_program() -> impl Strategy<Value = Program> {
    let sizes =
        proptest::collection::vec(prop_oneof![6 => 1..20_usize, 1 => 600..900_usize], 1..=3);
    (2..=4_usize, 2..=3_usize, sizes).prop_flat_map(|(streams, threads, sizes)| {
        let steps = proptest::collection::vec(any_step(streams, sizes.len()), 1..30);
        proptest::collection::vec(steps, threads).prop_map(move |threads| Program {
            streams,
            sizes: sizes.clone(),
            threads,
        })
    })
}

/// The number that fills all of these words.
fn number(words: &[u64]) -> u64 {
    assert!(
        words.iter().all(|word| *word == words[0]),
        "half of a write is seen: {words:?}"
    );
    words[0]
}

fn increment(words: &mut [u64]) {
    let next = number(words) + 1;
    words.fill(next);
}

struct World {
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
}

/// What one thread did and saw.
#[derive(Default)]
struct Account {
    added: HashMap<usize, u64>,
    seen: HashMap<usize, u64>,
    futures: Vec<(usize, Future<Vec<u64>>)>,
}

impl Account {
    fn take_step(&mut self, step: &Step, world: &World) {
        match step {
            Step::Add(s, some, host) => {
                let accesses: Vec<_> = some
                    .iter()
                    .map(|b| world.buffers[*b].update::<u64>())
                    .collect();
                let stream = &world.streams[*s];
                let add = |all: Vec<&mut [u64]>| all.into_iter().for_each(increment);
                if *host {
                    stream.run_host(accesses, add).unwrap();
                } else {
                    stream.run(accesses, add).unwrap();
                }
                some.iter()
                    .for_each(|b| *self.added.entry(*b).or_default() += 1);
            }
            Step::Kernel(s, b) => {
                let buffer = &world.buffers[*b];
                let add = |_, words: &mut [u64]| words.iter_mut().for_each(|word| *word += 1);
                let count = buffer.nbytes() / 8;
                world.streams[*s]
                    .parallel_for(count, 7, buffer.update::<u64>(), add)
                    .unwrap();
                *self.added.entry(*b).or_default() += 1;
            }
            Step::Look(s, a, b) => {
                let accesses = (
                    world.buffers[*a].read::<u64>(),
                    world.buffers[*b].read::<u64>(),
                );
                let look = |(a, b): (&[u64], &[u64])| assert!(number(a).max(number(b)) < u64::MAX);
                world.streams[*s].run(accesses, look).unwrap();
            }
            Step::CopyOut(s, b) => {
                let buffer = &world.buffers[*b];
                let out = world.streams[*s].copy_out(buffer, 0..buffer.nbytes());
                self.futures.push((*b, out.unwrap()));
            }
            Step::CopyAside(s, b) => {
                let (stream, buffer) = (&world.streams[*s], &world.buffers[*b]);
                let aside = Buffer::new(CPU, buffer.nbytes()).unwrap();
                stream.copy(buffer, 0, &aside, 0, buffer.nbytes()).unwrap();
                let out = stream.copy_out(&aside, 0..buffer.nbytes());
                self.futures.push((*b, out.unwrap()));
            }
            Step::View(b) => {
                // Writers are refused while it lives, so it is of a copy.
                let copy = Buffer::new(CPU, world.buffers[*b].nbytes()).unwrap();
                world.streams[0]
                    .copy(&world.buffers[*b], 0, &copy, 0, copy.nbytes())
                    .unwrap();
                self.see(*b, number(&copy.view::<u64>().unwrap()));
            }
            Step::Take => self.take(1),
            Step::Synchronize(s) => world.streams[*s].synchronize().unwrap(),
        }
    }

    /// Takes the results that were asked for first: this thread asked for them in this order.
    fn take(&mut self, few: usize) {
        for (b, future) in self
            .futures
            .drain(..few.min(self.futures.len()))
            .collect::<Vec<_>>()
        {
            self.see(b, number(&future.wait().unwrap()));
        }
    }

    fn see(&mut self, b: usize, number: u64) {
        let seen = self.seen.entry(b).or_default();
        *seen = number.max(*seen);
    }

    /// What was asked for now, after all this thread's additions, must show all of them.
    fn look_back(&mut self, world: &World) {
        self.take(usize::MAX);
        for (b, buffer) in world.buffers.iter().enumerate() {
            let now = number(&buffer.to_vec::<u64>().unwrap());
            let least = self.added.get(&b).max(self.seen.get(&b)).copied();
            assert!(now >= least.unwrap_or(0), "an increment was lost");
        }
    }
}

fn play(steps: &[Step], world: &World) -> Account {
    let mut account = Account::default();
    steps.iter().for_each(|step| account.take_step(step, world));
    account.look_back(world);
    account
}

fn run(program: &Program) -> Result<(), TestCaseError> {
    let mut streams = vec![default_stream()];
    streams.resize_with(program.streams, stream);
    let zero = |words: &usize| Buffer::from_slice(CPU, &vec![0_u64; *words]).unwrap();
    let world = World {
        streams,
        buffers: program.sizes.iter().map(zero).collect(),
    };
    let accounts = stage::racing(&program.threads, |steps| play(steps, &world));
    for (b, buffer) in world.buffers.iter().enumerate() {
        let added: u64 = accounts
            .iter()
            .filter_map(|account| account.added.get(&b))
            .sum();
        proptest::prop_assert_eq!(number(&buffer.to_vec::<u64>().unwrap()), added);
    }
    world
        .streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
    drop((world, accounts));
    proptest::prop_assert_eq!(live_bytes(), 0);
    Ok(())
}

#[test]
fn promise_04_programs_whose_threads_race_lose_no_write() {
    alone(AS_IT_IS, || {
        hush();
        check(3_000, any_program(), run);
    });
}
