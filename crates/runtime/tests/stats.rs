//! Live counters, as the program itself counts.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "shared/gate.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod gate;
#[path = "shared/watchdog.rs"]
#[expect(dead_code, reason = "other tests use all of it")]
mod watchdog;

use std::time::Duration;

use clika_runtime::{Device, Stream, StreamStats, stats};
use proptest::prelude::*;

use crate::gate::Gate;
use crate::watchdog::watch;

const CPU: Device = Device::cpu();

fn counts(stats: &StreamStats) -> [u64; 5] {
    let StreamStats {
        queued,
        running,
        completed,
        failed,
        skipped,
        ..
    } = *stats;
    [queued, running, completed, failed, skipped]
}

#[derive(Clone, Debug)]
enum Step {
    Native,
    Host,
    Fail,
    Panic,
    Call,
    Synchronize,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Native),
        2 => Just(Step::Host),
        1 => Just(Step::Fail),
        1 => Just(Step::Panic),
        2 => Just(Step::Call),
        2 => Just(Step::Synchronize),
    ]
}

/// What a sequential reader of the program expects.
#[derive(Default)]
struct Model {
    has_failed: bool,
    counts: [u64; 3],
}

impl Model {
    fn run(&mut self, fails: bool) {
        let at = match (self.has_failed, fails) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        self.counts[at] += 1;
        self.has_failed |= fails;
    }
}

fn perform(stream: &Stream, step: &Step, model: &mut Model) {
    match step {
        Step::Native => stream.submit(|| ()).unwrap(),
        Step::Host => stream.submit_host(|| ()).unwrap(),
        Step::Fail => stream.submit(|| "one".parse::<u32>().map(drop)).unwrap(),
        Step::Panic => stream
            .submit(|| -> () { panic!("a panic of the test") })
            .unwrap(),
        Step::Call => drop(stream.call(|| 1).unwrap()),
        Step::Synchronize => {
            assert_eq!(stream.synchronize().is_err(), model.has_failed);
            model.has_failed = false;
            return;
        }
    }
    model.run(matches!(step, Step::Fail | Step::Panic));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_operation_is_counted_once(steps in prop::collection::vec(step(), 0..60)) {
        let _watchdog = watch();
        std::panic::set_hook(Box::new(|_| ()));
        let (stream, mut model) = (Stream::create(CPU).unwrap(), Model::default());
        for step in &steps {
            perform(&stream, step, &mut model);
            let stats = stream.stats();
            let submitted = model.counts.iter().sum::<u64>();
            prop_assert_eq!(stats.submitted, submitted);
            prop_assert_eq!(counts(&stats).iter().sum::<u64>(), submitted);
            prop_assert!(stats.deepest_queue <= submitted);
        }
        let _ = stream.synchronize();
        let [completed, failed, skipped] = model.counts;
        prop_assert_eq!(counts(&stream.stats()), [0, 0, completed, failed, skipped]);
    }
}

#[test]
fn a_held_stream_is_busy_and_its_queue_waits() {
    let _watchdog = watch();
    let (held, waiting) = (Stream::create(CPU).unwrap(), Stream::create(CPU).unwrap());
    let gate = Gate::begun_on(&held);
    held.submit(|| ()).unwrap();
    waiting.wait_stream(&held).unwrap();
    waiting.submit(|| ()).unwrap();
    assert_eq!(counts(&held.stats()), [1, 1, 0, 0, 0]);
    assert_eq!(counts(&waiting.stats()), [2, 0, 0, 0, 0]);
    while held.stats().busy.is_zero() {
        std::thread::yield_now();
    }
    gate.open();
    waiting.synchronize().unwrap();
    held.synchronize().unwrap();
    assert_eq!(counts(&held.stats()), [0, 0, 2, 0, 0]);
    assert_eq!(counts(&waiting.stats()), [0, 0, 2, 0, 0]);
    assert_eq!(held.stats().deepest_queue, 2);
}

#[test]
fn the_default_stream_is_counted() {
    let _watchdog = watch();
    let default = Stream::default_stream(CPU).unwrap();
    let before = default.stats();
    let inside = default.clone();
    default
        .submit(move || assert_eq!(inside.stats().running, 1))
        .unwrap();
    assert!(default.submit(|| "one".parse::<u32>().map(drop)).is_err());
    let after = default.stats();
    assert_eq!(after.completed, before.completed + 1);
    assert_eq!(after.failed, before.failed + 1);
}

#[test]
fn all_streams_that_have_a_handle_are_told() {
    let _watchdog = watch();
    let told = |name: &str| stats().streams.iter().filter(|of| of.name == name).count();
    let one = Stream::named(CPU, "one").unwrap();
    let other = one.clone();
    assert_eq!(told("one"), 1);
    drop(one);
    assert_eq!(told("one"), 1);
    drop(other);
    assert_eq!(told("one"), 0);
    assert!(stats().workers >= 1);
    assert_eq!(stats().memory.len(), 1);
}

#[test]
fn they_print_as_a_table() {
    let _watchdog = watch();
    let stream = Stream::named(CPU, "wide name of a stream").unwrap();
    stream.submit(|| ()).unwrap();
    stream.synchronize().unwrap();
    let text = stats().to_string();
    let mut lines = text.lines();
    let heading = lines.next().unwrap();
    let line = lines.find(|line| line.starts_with("wide name")).unwrap();
    assert_eq!(heading.chars().count(), line.chars().count());
    assert!(text.contains("memory of cpu:0: ") && text.contains("threads: "));
}

#[test]
fn a_stream_in_a_loop_is_seen_to_be_busy() {
    let _watchdog = watch();
    let stream = Stream::create(CPU).unwrap();
    while stream.stats().busy < Duration::from_millis(50) {
        for _ in 0..100 {
            stream
                .submit(|| {
                    (0..1000).for_each(|at| {
                        std::hint::black_box(at);
                    })
                })
                .unwrap();
        }
        stream.synchronize().unwrap();
    }
}
