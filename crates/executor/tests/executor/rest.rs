//! Whether a process rests: its threads sleep, which a busy machine does not change.

use std::fs;
use std::time::Instant;

/// Runs `body`, which takes a second or so, and checks that the threads of this process slept
/// through it: they hardly woke up, and none wanted to run all the time.
#[track_caller]
pub(crate) fn at_rest(body: impl FnOnce()) {
    let (before, begin) = (Usage::now(), Instant::now());
    body();
    let (after, elapsed) = (Usage::now(), begin.elapsed().as_nanos());
    let slept = after.slept - before.slept;
    assert!(slept < 50, "threads went to sleep {slept} times");
    let ran = u128::from(after.ran - before.ran);
    assert!(ran < elapsed / 10, "threads ran {ran} ns of {elapsed} ns");
}

/// What all threads of this process together did so far. They must not end in between.
struct Usage {
    /// How often they went to sleep.
    slept: u64,
    /// How long they ran, in nanoseconds.
    ran: u64,
}

impl Usage {
    fn now() -> Self {
        let mut usage = Self { slept: 0, ran: 0 };
        for thread in fs::read_dir("/proc/self/task").unwrap() {
            let thread = thread.unwrap().path();
            let status = fs::read_to_string(thread.join("status")).unwrap();
            let mut lines = status.lines();
            let slept = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            usage.slept += slept.unwrap().trim().parse::<u64>().unwrap();
            let schedstat = fs::read_to_string(thread.join("schedstat")).unwrap();
            let ran = schedstat.split(' ').next();
            usage.ran += ran.unwrap().parse::<u64>().unwrap();
        }
        usage
    }
}
