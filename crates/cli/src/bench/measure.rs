//! The measures. Each one takes a few seconds at most and belongs in a process of its own.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::peer::{Gate, Peer, Queue};
use super::process;

/// Named results of one measure.
pub type Figures = Vec<(&'static str, f64)>;

/// The measures by name.
pub const NAMES: [&str; 6] = [
    "submit", "marker", "handover", "backlog", "streams", "overlap",
];

/// How much of everything: enough to measure, or just enough to see that it works.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub(super) repeats: usize,
    pub(super) submits: u64,
    round_trips: usize,
    idle_round_trips: usize,
    hand_overs: u64,
    backlog: [u64; 3],
    streams: usize,
    millisecond_operations: u64,
}

impl Sizes {
    /// For figures that mean something.
    pub const FULL: Self = Self {
        repeats: 7,
        submits: 100_000,
        round_trips: 5_000,
        idle_round_trips: 200,
        hand_overs: 10_000,
        backlog: [10_000, 100_000, 1_000_000],
        streams: usize::MAX,
        millisecond_operations: 400,
    };

    /// For a first look: the same depths and numbers of streams, fewer repeats.
    pub const QUICK: Self = Self {
        repeats: 3,
        round_trips: 1_000,
        idle_round_trips: 50,
        millisecond_operations: 200,
        ..Self::FULL
    };

    /// For a test.
    pub const SMOKE: Self = Self {
        repeats: 2,
        submits: 1_000,
        round_trips: 50,
        idle_round_trips: 3,
        hand_overs: 100,
        backlog: [10, 100, 1_000],
        streams: 20,
        millisecond_operations: 4,
    };
}

/// Runs one measure of `NAMES`; `None` for any other name.
pub fn run<P: Peer>(name: &str, sizes: &Sizes) -> Option<Figures> {
    let peer = P::start();
    Some(match name {
        "submit" => submit(&peer, sizes),
        "marker" => marker(&peer, sizes),
        "handover" => hand_over(&peer, sizes),
        "backlog" => backlog(&peer, sizes),
        "streams" => streams(&peer, sizes),
        "overlap" => overlap(&peer, sizes),
        _ => return None,
    })
}

/// Submitting closures that capture one word, and draining the queue.
fn submit(peer: &impl Peer, sizes: &Sizes) -> Figures {
    let queue = peer.queue();
    let (mut submits, mut rates) = (Vec::new(), Vec::new());
    submit_many(&queue, sizes.submits);
    queue.drain();
    for _ in 0..sizes.repeats {
        let start = Instant::now();
        submit_many(&queue, sizes.submits);
        submits.push(nanoseconds(start) / sizes.submits as f64);
        queue.drain();
        rates.push(sizes.submits as f64 / nanoseconds(start) * 1e3);
    }
    vec![("submit_ns", median(submits)), ("rate_m", median(rates))]
}

/// A brief operation and a wait for it: one after the other, and each after 2 ms of idling.
fn marker(peer: &impl Peer, sizes: &Sizes) -> Figures {
    let queue = peer.queue();
    round_trips(&queue, sizes.round_trips / 10, Duration::ZERO);
    let hot = round_trips(&queue, sizes.round_trips, Duration::ZERO);
    let idle = round_trips(&queue, sizes.idle_round_trips, Duration::from_millis(2));
    vec![
        ("hot_us", quantile(hot.clone(), 0.5)),
        ("hot_p99_us", quantile(hot, 0.99)),
        ("idle_us", quantile(idle.clone(), 0.5)),
        ("idle_p99_us", quantile(idle, 0.99)),
    ]
}

fn round_trips(queue: &impl Queue, count: usize, pause: Duration) -> Vec<f64> {
    let one = |_| {
        idle(pause);
        let start = Instant::now();
        queue.round_trip();
        nanoseconds(start) / 1e3
    };
    (0..count).map(one).collect()
}

#[expect(clippy::disallowed_methods, reason = "idling is what is measured")]
fn idle(pause: Duration) {
    if !pause.is_zero() {
        thread::sleep(pause);
    }
}

/// Two queues take turns: all of it enqueued ahead behind a held operation; the same while the host
/// still enqueues, its calls included; and every operation submitting the next.
fn hand_over(peer: &impl Peer, sizes: &Sizes) -> Figures {
    let (first, second) = (peer.queue(), peer.queue());
    let each = |run: &dyn Fn() -> f64| {
        run();
        let microseconds = (0..sizes.repeats).map(|_| run() / 1e3 / sizes.hand_overs as f64);
        median(microseconds.collect())
    };
    let ahead = || {
        let release = first.hold();
        alternate(&first, &second, sizes.hand_overs);
        let start = Instant::now();
        release();
        drain_both(&first, &second);
        nanoseconds(start)
    };
    let total = || {
        let start = Instant::now();
        alternate(&first, &second, sizes.hand_overs);
        drain_both(&first, &second);
        nanoseconds(start)
    };
    let chained = || {
        let done = Arc::new(Gate::default());
        let start = Instant::now();
        pass_on(&first, &second, sizes.hand_overs, Arc::clone(&done));
        done.pass();
        nanoseconds(start)
    };
    vec![
        ("ahead_us", each(&ahead)),
        ("total_us", each(&total)),
        ("next_us", each(&chained)),
    ]
}

/// Every operation waits for the mark behind the one before it, on the other queue.
fn alternate<Q: Queue>(first: &Q, second: &Q, count: u64) {
    let mut last = None;
    for turn in 0..count {
        let queue = if turn % 2 == 0 { first } else { second };
        if let Some(event) = last {
            queue.wait(event);
        }
        store(queue, turn);
        last = Some(queue.record());
    }
}

fn drain_both(first: &impl Queue, second: &impl Queue) {
    first.drain();
    second.drain();
}

fn pass_on<Q: Queue>(here: &Q, there: &Q, left: u64, done: Arc<Gate>) {
    if left == 0 {
        return done.open();
    }
    let (next, back) = (there.clone(), here.clone());
    here.submit(move || pass_on(&next, &back, left - 1, done));
}

/// The cost of an operation when few or very many wait behind a held one.
fn backlog(peer: &impl Peer, sizes: &Sizes) -> Figures {
    let queue = peer.queue();
    let cost = |depth: u64| {
        let release = queue.hold();
        let start = Instant::now();
        submit_many(&queue, depth);
        release();
        queue.drain();
        nanoseconds(start) / depth as f64
    };
    // Shallow ones are over quickly and need more repeats to be as steady.
    let [shallow, middle, deep] = sizes.backlog.map(|depth| {
        let repeats = sizes.repeats * sizes.backlog[1].div_ceil(depth) as usize;
        median((0..repeats).map(|_| cost(depth)).collect())
    });
    vec![
        ("10k_ns", shallow),
        ("100k_ns", middle),
        ("1m_ns", deep),
        ("growth", deep / shallow),
    ]
}

/// Very many queues: what each takes once it has been used, and the rate of ten operations on each.
fn streams<P: Peer>(peer: &P, sizes: &Sizes) -> Figures {
    const EACH: u64 = 10;
    let count = P::MANY.min(sizes.streams);
    let mut queues = start_all_threads(peer);
    queues.reserve_exact(count);
    let (memory, threads, start) = (process::resident(), process::threads(), Instant::now());
    queues.extend((0..count).map(|_| peer.queue()));
    let create = nanoseconds(start) / count as f64;
    for queue in &queues {
        store(queue, 0);
        queue.drain();
    }
    let each = (process::resident() - memory) / count as f64;
    let start = Instant::now();
    for turn in 0..EACH {
        queues.iter().for_each(|queue| store(queue, turn));
    }
    queues.iter().for_each(Queue::drain);
    let rate = EACH as f64 * queues.len() as f64 / nanoseconds(start) * 1e3;
    vec![
        ("count", count as f64),
        ("create_us", create / 1e3),
        ("each_kb", each),
        ("threads", process::threads() - threads),
        ("rate_m", rate),
    ]
}

/// Uses some queues first: threads that exist for all queues are no cost of one.
fn start_all_threads<P: Peer>(peer: &P) -> Vec<P::Queue> {
    let steps = steps_per_millisecond();
    let queues: Vec<_> = (0..8).map(|_| peer.queue()).collect();
    queues.iter().for_each(|queue| work(queue, steps));
    queues.iter().for_each(Queue::drain);
    queues
}

/// The same work on one queue, and shared out over two: 2 is perfect on two idle cores.
fn overlap(peer: &impl Peer, sizes: &Sizes) -> Figures {
    let (first, second) = (peer.queue(), peer.queue());
    let steps = steps_per_millisecond();
    let timed = |queues: [&_; 2]| {
        let start = Instant::now();
        for turn in 0..sizes.millisecond_operations {
            work(queues[turn as usize % 2], steps);
        }
        drain_both(queues[0], queues[1]);
        nanoseconds(start)
    };
    let gains =
        (0..sizes.repeats.div_ceil(2)).map(|_| timed([&first, &first]) / timed([&first, &second]));
    vec![("gain", median(gains.collect()))]
}

fn work(queue: &impl Queue, steps: u64) {
    queue.submit(move || compute(steps));
}

/// Bound to a core: each step needs the one before.
fn compute(steps: u64) {
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..steps {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
}

fn steps_per_millisecond() -> u64 {
    const STEPS: u64 = 1_000_000;
    let fastest = (0..5).map(|_| {
        let start = Instant::now();
        compute(STEPS);
        nanoseconds(start)
    });
    (STEPS as f64 * 1e6 / fastest.fold(f64::INFINITY, f64::min)) as u64
}

fn submit_many(queue: &impl Queue, count: u64) {
    for turn in 0..count {
        store(queue, turn);
    }
}

/// The smallest operation that captures something and has an effect.
fn store(queue: &impl Queue, word: u64) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    queue.submit(move || LAST.store(word, Ordering::Relaxed));
}

pub(super) fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

pub(super) fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() as f64 * share) as usize]
}
