//! What Linux says about this process.

#![expect(clippy::expect_used, reason = "a measure stops at the first surprise")]

use std::fs;

/// Resident memory in KiB.
pub(crate) fn resident() -> f64 {
    status("VmRSS:")
}

/// Threads that exist now.
pub(crate) fn threads() -> f64 {
    status("Threads:")
}

fn status(key: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").expect("the benches need Linux's /proc");
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .expect("Linux reports this for every process")
}
