//! Random programs on random schedules: strands, workers, the host lane, foreign threads, inline
//! strands, waits inside operations, failures, acknowledgements and the shutdown, all at once.
//!
//! Larger than what loom can finish. The programs check themselves: each operation knows its
//! strand, so overlap and disorder are found where they happen, and each point is asked on the
//! spot whether its operation ran, was let go and was dropped. What they find they note, since a
//! panic inside an operation is its strand's failure. A hang is found by shuttle, which prints a
//! schedule that replays whatever it finds.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{spawn, yield_now};

use crate::failure::{Failure, Fault, Reason};
use crate::{
    Config, Executor, ForeignThread, Host, Kind, Mark, Native, Next, Operation, Point, Refused,
    Strand,
};

/// Runs `program` on many schedules, most of them random, some with few, well placed interruptions.
fn explore(schedules: usize, program: impl Fn() + Send + Sync + 'static) {
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
    let program = Arc::new(program);
    let random = {
        let program = program.clone();
        move || program()
    };
    let scheduler = RandomScheduler::new_from_seed(seed, schedules * 2 / 3);
    shuttle::Runner::new(scheduler, config.clone()).run(random);
    let scheduler = PctScheduler::new_from_seed(seed, 3, schedules / 3);
    shuttle::Runner::new(scheduler, config).run(move || program());
}

/// A strand, and what its operations must agree on.
struct Lane {
    strand: Arc<Strand>,
    busy: AtomicBool,
    /// For each submitting thread, the number of its last operation that ended here.
    last: [AtomicU64; SUBMITTERS],
}

const SUBMITTERS: usize = 2;

impl Lane {
    fn new(strand: Arc<Strand>) -> Self {
        let last = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            strand,
            busy: AtomicBool::new(false),
            last,
        }
    }
}

struct Alone<'a>(&'a AtomicBool);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// What became of one operation.
#[derive(Default)]
struct Fate {
    ran: AtomicU64,
    dropped: AtomicU64,
}

struct Dropped(Arc<Fate>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
    }
}

struct World {
    executor: Executor,
    lanes: Vec<Lane>,
    inline: Lane,
    /// Operations whose end was looked at, and those that were submitted.
    ended: AtomicU64,
    submitted: AtomicU64,
    /// How often something was not as promised.
    wrong: AtomicU64,
}

/// The body of an operation: what it checks while it runs, and what it does.
struct Body {
    world: Arc<World>,
    at: usize,
    by: usize,
    number: u64,
    deed: Deed,
    fate: Dropped,
}

enum Deed {
    Nothing,
    Fail,
    Panic,
    /// Waits for this point, if that is possible.
    Wait(Point),
    /// Takes a turn on the inline strand, if that is possible.
    Visit,
}

impl Body {
    fn run(self) -> Result<(), Reason> {
        let Self {
            world,
            at,
            by,
            number,
            deed,
            fate,
        } = self;
        let lane = world.lane(at);
        let _alone = world.enter(lane);
        world.check(lane.last[by].swap(number, SeqCst) < number);
        fate.0.ran.fetch_add(1, SeqCst);
        yield_now();
        world.perform(deed)
    }
}

impl World {
    fn new(workers: usize) -> Arc<Self> {
        let config = Config {
            workers,
            host_threads: 3,
            reporter: Box::new(|_| {}),
            recruiter: None,
        };
        let executor = Executor::new(config).expect("models always get their threads");
        let lanes = (0..3).map(|_| Lane::new(executor.strand(None))).collect();
        let inline = Lane::new(executor.inline_strand("inline"));
        let [ended, submitted, wrong] = [0; 3].map(AtomicU64::new);
        Arc::new(Self {
            executor,
            lanes,
            inline,
            ended,
            submitted,
            wrong,
        })
    }

    /// Notes it, with its line, if `holds` is false.
    #[track_caller]
    fn check(&self, holds: bool) {
        if !holds {
            self.wrong.fetch_add(1, SeqCst);
            println!("wrong at {}", std::panic::Location::caller());
        }
    }

    /// Everything that was submitted has ended, and nothing was wrong.
    fn verify(&self) {
        assert!(self.executor.drain(None));
        assert_eq!(self.wrong.load(SeqCst), 0);
        assert_eq!(self.ended.load(SeqCst), self.submitted.load(SeqCst));
        for lane in self.lanes.iter().chain([&self.inline]) {
            assert_eq!(lane.strand.pending(), 0);
        }
    }

    fn lane(&self, at: usize) -> &Lane {
        self.lanes.get(at).unwrap_or(&self.inline)
    }

    /// Checks that the caller is alone on the strand until it drops what it gets.
    fn enter<'a>(&self, lane: &'a Lane) -> Alone<'a> {
        self.check(!lane.busy.swap(true, SeqCst));
        Alone(&lane.busy)
    }

    fn perform(&self, deed: Deed) -> Result<(), Reason> {
        match deed {
            Deed::Nothing => Ok(()),
            Deed::Fail => Err(Reason::Foreign(
                Box::new("on purpose"),
                "it was told to".to_owned(),
            )),
            // As a panic, but without the message on the screen.
            Deed::Panic => std::panic::resume_unwind(Box::new("on purpose")),
            Deed::Wait(point) => {
                if let Ok(mut wait) = point.wait() {
                    self.check(wait.until(None));
                }
                Ok(())
            }
            Deed::Visit => {
                self.take_turn(None, 0);
                Ok(())
            }
        }
    }

    /// Visits the inline strand and checks that nobody else is there.
    fn take_turn(&self, submitter: Option<(usize, u64)>, withdraw_one_in: u32) {
        let Ok(Ok(visitor)) = self.inline.strand.visit() else {
            return;
        };
        if withdraw_one_in > 0 && thread_rng().gen_range(0..withdraw_one_in) == 0 {
            yield_now();
            return;
        }
        self.check(visitor.until(None));
        let Ok(inside) = visitor.enter() else { return };
        let alone = self.enter(&self.inline);
        if let Some((by, number)) = submitter {
            self.check(self.inline.last[by].swap(number, SeqCst) < number);
        }
        yield_now();
        drop(alone);
        inside.finish(Ok(()));
    }

    fn any_point(&self) -> Point {
        let at = thread_rng().gen_range(0..=self.lanes.len());
        self.lane(at).strand.point()
    }

    fn deed(&self) -> Deed {
        match thread_rng().gen_range(0..10) {
            0 => Deed::Fail,
            1 => Deed::Panic,
            2 | 3 => Deed::Wait(self.any_point()),
            4 => Deed::Visit,
            _ => Deed::Nothing,
        }
    }
}

/// An operation for a thread of another language.
struct Foreign(Body);

impl Operation for Foreign {
    const KIND: Kind = Kind::Foreign;

    fn run(self) -> Result<(), Fault> {
        unreachable!("foreign operations are taken")
    }
}

fn recruit(world: &Arc<World>) {
    if world.executor.recruit() {
        let world = world.clone();
        spawn(move || serve(&world));
    }
}

fn serve(world: &Arc<World>) {
    let mut thread = ForeignThread::arrive(&world.executor);
    loop {
        match thread.next::<Foreign>() {
            Some(Next::Run(Foreign(body))) => {
                recruit(world);
                thread.finish(catch(|| body.run()));
            }
            Some(Next::Skip(operation, _)) => {
                drop(operation);
                thread.finish(Ok(()));
            }
            None if thread.rest() => {}
            None => return,
        }
        if thread_rng().gen_range(0..8) == 0 {
            // This one ends early. Another is made for what it leaves, as whoever pushes does.
            drop(thread);
            recruit(world);
            return;
        }
    }
}

fn catch(work: impl FnOnce() -> Result<(), Reason>) -> Result<(), Fault> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    outcome
        .unwrap_or_else(|payload| Err(Reason::from_panic(payload)))
        .map_err(|reason| Fault::new(reason, None))
}

/// One thread that submits.
fn submit(world: &Arc<World>, by: usize, steps: u64) {
    for number in 1..=steps {
        let at = thread_rng().gen_range(0..world.lanes.len());
        let strand = &world.lanes[at].strand;
        match thread_rng().gen_range(0..10) {
            0 => drop(strand.wait_for(&world.any_point())),
            1 => world.take_turn(Some((by, number)), 3),
            2 => drop(world.inline.strand.wait_for(&strand.point())),
            3 => synchronize(strand),
            _ => push(world, at, by, number),
        }
    }
}

/// Waits for all of it, and acknowledges a failure.
fn synchronize(strand: &Arc<Strand>) {
    let point = strand.point();
    assert!(point.wait().expect("not inside an operation").until(None));
    if point.failure().is_some() {
        point.acknowledge();
        // A wait for a strand that failed along may bring the failure back, but not the epoch.
        assert!(!strand.point().is_in_epoch_of(&point));
    }
}

/// Whether `failure` came of running the operation that ends at `end`.
fn is_of(failure: &Failure, end: &Point) -> bool {
    let origin = &failure.origin;
    !matches!(failure.reason, Reason::ShutDown)
        && (origin.strand_id, origin.operation) == (end.strand().id(), end.n())
}

fn push(world: &Arc<World>, at: usize, by: usize, number: u64) {
    let fate = Arc::new(Fate::default());
    let body = Body {
        world: world.clone(),
        at,
        by,
        number,
        deed: world.deed(),
        fate: Dropped(fate.clone()),
    };
    let strand = &world.lanes[at].strand;
    let is_mark = thread_rng().gen_range(0..8) == 0;
    let pushed = match thread_rng().gen_range(0..4) {
        _ if is_mark => strand.push_at(Mark::new(move || {
            body.fate.0.ran.fetch_add(1, SeqCst);
        })),
        0 => strand.push_at(Host::new(move || body.run(), None)),
        1 => {
            let pushed = strand.push_at(Foreign(body));
            recruit(world);
            pushed
        }
        _ => strand.push_at(Native::new(move || body.run(), None)),
    };
    match pushed {
        Ok(end) => look_at(world, end, fate, is_mark),
        Err(refused) => {
            assert!(matches!(refused, Refused::ShutDown));
            assert_eq!((fate.ran.load(SeqCst), fate.dropped.load(SeqCst)), (0, 1));
        }
    }
}

/// Checks, once `end` is reached, that the operation ran or was skipped as the point says.
fn look_at(world: &Arc<World>, end: Point, fate: Arc<Fate>, is_mark: bool) {
    world.submitted.fetch_add(1, SeqCst);
    let (world, point) = (world.clone(), end.clone());
    point.when_reached(move || {
        let ran = fate.ran.load(SeqCst);
        world.check(ran <= 1);
        world.check(fate.dropped.load(SeqCst) == 1);
        let failed_itself = end.failure().is_some_and(|why| is_of(&why, &end));
        if !is_mark {
            world.check((ran == 1) == (failed_itself || end.failure().is_none()));
        }
        world.ended.fetch_add(1, SeqCst);
    });
}

fn submitters(world: &Arc<World>, steps: u64) -> Vec<shuttle::thread::JoinHandle<()>> {
    let start = |by| {
        let world = world.clone();
        spawn(move || submit(&world, by, steps))
    };
    (0..SUBMITTERS).map(start).collect()
}

#[test]
fn programs_run_to_their_end() {
    explore(9000, || {
        let world = World::new(3);
        submitters(&world, 6)
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
        world.verify();
        world.executor.close();
    });
}

/// One worker, so that nothing moves unless those that wait are replaced.
#[test]
fn programs_run_to_their_end_with_one_worker() {
    explore(6000, || {
        let world = World::new(1);
        submitters(&world, 6)
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
        world.verify();
        world.executor.close();
    });
}

/// The shutdown comes at any time: everybody comes back, and every point is reached.
#[test]
fn programs_end_when_the_executor_closes_in_their_midst() {
    explore(6000, || {
        let world = World::new(2);
        let threads = submitters(&world, 6);
        for _ in 0..thread_rng().gen_range(0..30) {
            yield_now();
        }
        world.executor.close();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
        world.verify();
    });
}
