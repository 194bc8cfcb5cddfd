//! Submission against completion: operations on two storages, submitted by two threads to two
//! streams, on random schedules.
//!
//! Every operation that writes copies one number through a yield, so a lost update shows; operations
//! on both storages leave the same mark in both, so a half-seen one shows; and any two that meet at
//! the same bytes fail their stream. A hang is found by shuttle.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use clika_executor::{Config, Executor, Point, Reason};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{spawn, yield_now};

use crate::device::Device;
use crate::hazard::Access;
use crate::pool::Pool;
use crate::storage::{Claim, Held, Storage};
use crate::stream::Stream;
use crate::task::{Anywhere, OnWorker};

const OPERATIONS: u64 = 3;

/// Runs `program` on many schedules, most of them random, some with few, well placed interruptions.
fn explore(schedules: usize, program: fn()) {
    let setting = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seed = setting("CLIKA_SEED").unwrap_or_else(|| RandomState::new().hash_one(()));
    let schedules = schedules * setting("CLIKA_SOAK").map_or(1, |_| 50);
    println!("CLIKA_SEED={seed}");
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    let scheduler = RandomScheduler::new_from_seed(seed, schedules * 2 / 3);
    shuttle::Runner::new(scheduler, config.clone()).run(program);
    let scheduler = PctScheduler::new_from_seed(seed, 3, schedules / 3);
    shuttle::Runner::new(scheduler, config).run(program);
}

/// What the bytes of a storage stand for.
#[derive(Default)]
struct Cell {
    count: AtomicU64,
    mark: AtomicU64,
}

struct World {
    streams: [Stream; 2],
    storages: [Arc<Storage>; 2],
    cells: Arc<[Cell; 2]>,
    /// Counts that operations add to each storage.
    added: [AtomicU64; 2],
}

impl World {
    fn new(executor: &Executor) -> Self {
        let device = Device::cpu();
        let pool = Pool::new(0);
        let storage = || {
            let storage = Storage::new(device, 8, pool.clone());
            storage.fill_with(&[0; 8]).expect("there is memory");
            storage
        };
        let stream = || Stream::unlisted(executor.strand(None), device);
        Self {
            streams: [stream(), stream()],
            storages: [storage(), storage()],
            cells: Arc::default(),
            added: Default::default(),
        }
    }

    fn claim(&self, at: usize, access: Access) -> Claim {
        Claim {
            storage: self.storages[at].clone(),
            access,
        }
    }

    /// Submits a random operation.
    fn submit(&self, mark: u64) {
        let stream = &self.streams[thread_rng().gen_range(0..2)];
        let (first, brief) = (thread_rng().gen_range(0..2), thread_rng().gen_bool(0.3));
        let cells = self.cells.clone();
        match thread_rng().gen_range(0..3) {
            // Both, in either order.
            0 => {
                let claims = [first, 1 - first].map(|at| self.claim(at, Access::Patch));
                self.run(stream, claims, brief, move || {
                    cells[first].mark.store(mark, SeqCst);
                    yield_now();
                    cells[1 - first].mark.store(mark, SeqCst);
                    true
                });
            }
            1 => {
                self.added[first].fetch_add(1, SeqCst);
                self.run(
                    stream,
                    [self.claim(first, Access::Patch)],
                    brief,
                    move || {
                        let count = cells[first].count.load(SeqCst);
                        yield_now();
                        cells[first].count.store(count + 1, SeqCst);
                        true
                    },
                );
            }
            _ => {
                let claims = [first, 1 - first].map(|at| self.claim(at, Access::Read));
                self.run(stream, claims, brief, move || {
                    let marks = [0, 1].map(|at: usize| {
                        yield_now();
                        cells[at].mark.load(SeqCst)
                    });
                    marks[0] == marks[1]
                });
            }
        }
    }

    fn run<const N: usize>(
        &self,
        stream: &Stream,
        claims: [Claim; N],
        brief: bool,
        deed: impl FnOnce() -> bool + Send + 'static,
    ) {
        let submit = stream.submit_at(claims, None, "work");
        let work = move |_: &Held<'_>| {
            if deed() {
                Ok(())
            } else {
                Err(Reason::Panicked(
                    "another operation was seen half done".into(),
                ))
            }
        };
        let submitted = if brief {
            submit.run(Anywhere, work)
        } else {
            submit.run(OnWorker, work)
        };
        submitted.expect("nothing is wrong with it");
    }
}

fn submit_against_completion() {
    let config = Config {
        workers: 2,
        host_threads: 1,
        reporter: Box::new(|_| {}),
        recruiter: None,
    };
    let executor = Executor::new(config).expect("models always get their threads");
    let world = Arc::new(World::new(&executor));
    let submitters: Vec<_> = (1..3)
        .map(|thread| {
            let world = world.clone();
            spawn(move || (0..OPERATIONS).for_each(|n| world.submit(thread * 10 + n)))
        })
        .collect();
    submitters
        .into_iter()
        .for_each(|thread| thread.join().expect("submitters do not panic"));
    for stream in &world.streams {
        let point: Point = stream.strand().point();
        assert!(point.wait().expect("not inside an operation").until(None));
        assert!(point.failure().is_none(), "{:?}", point.failure());
    }
    for (cell, added) in world.cells.iter().zip(&world.added) {
        assert_eq!(cell.count.load(SeqCst), added.load(SeqCst));
    }
    drop(executor);
}

#[test]
fn submissions_and_completions_on_two_storages_and_two_streams() {
    explore(6_000, submit_against_completion);
}
