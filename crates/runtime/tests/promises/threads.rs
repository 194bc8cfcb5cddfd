//! What the system tells about the threads of this process.

use std::fs;

use crate::waiting::until;

/// The names of all threads, cut at fifteen letters as the system does.
pub(crate) fn names() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks
        .filter_map(|task| name(task.unwrap()))
        .map(|name| name.trim().to_owned())
        .collect()
}

/// A thread by the system's number.
#[derive(Clone, Copy)]
pub(crate) struct Id(libc::pid_t);

/// The calling thread.
#[expect(unsafe_code, reason = "the standard library does not tell")]
pub(crate) fn current() -> Id {
    // SAFETY: the call has no conditions.
    Id(unsafe { libc::gettid() })
}

impl Id {
    /// Returns once the thread sleeps: all that it did before it began to wait has happened.
    pub(crate) fn until_asleep(self) {
        until(|| {
            let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", self.0)).unwrap();
            // The state follows the name, which is in parentheses and may hold anything.
            stat.rsplit_once(')')
                .is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
        });
    }
}
