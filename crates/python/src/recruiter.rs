//! Making threads for the host lane: at once while there are few, and then only when they block.
//!
//! The lane asks for a thread when work waits and nobody is on the way to it. Threads of the
//! interpreter are made by attached threads only, so the request becomes a job of the runtime's own
//! host threads, which may wait for the interpreter lock.
//!
//! More threads help if the present ones block. They do not if those compute, or wait for the
//! interpreter lock. So beyond as many threads as there are cores, one more is made only when no
//! operation has begun for a while although work waits, and fewer threads of the lane run on a core
//! than there are cores. The while is a millisecond; it is longer where the interpreter lock is in
//! heavy use, so that a thread that waits for it in the middle of its operation gets it meanwhile.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clika_runtime::foreign::{self, Executor, Host, Refused};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::exceptions::raised;
use crate::gate::{self, Section};
use crate::host;

/// How long the lane's threads must stand still.
const STILL: Duration = Duration::from_millis(1);
/// How long if the interpreter lock is in heavy use: a few of its switch intervals.
const STILL_IN_HEAVY_USE: Duration = Duration::from_millis(15);
/// An interpreter lock that takes longer than this to get is in heavy use.
const SOON: Duration = Duration::from_millis(2);
/// Time between two tries to start a thread that the system refuses.
const RETRY: Duration = Duration::from_millis(100);

/// The system's numbers of the lane's threads.
#[derive(Default)]
pub(crate) struct Roll(Mutex<Vec<u32>>);

impl Roll {
    pub(crate) fn add(&self, thread: u32) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(thread);
    }

    pub(crate) fn remove(&self, thread: u32) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| *other != thread);
    }

    /// How many of them run on a core right now, counted up to `enough`. None where the system
    /// does not tell.
    fn running(&self, enough: usize) -> usize {
        let threads = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        threads
            .into_iter()
            .filter(|thread| is_running(*thread))
            .take(enough)
            .count()
    }
}

fn is_running(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // The state follows the name, which is in parentheses and may hold anything.
    status.is_ok_and(|text| {
        text.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('R'))
    })
}

/// Sees to the first thread of the lane, where its error can be raised.
pub(crate) fn first(py: Python<'_>, executor: &Executor) -> PyResult<()> {
    if !executor.recruit() {
        return Ok(());
    }
    let _section = Section::begin(py);
    let Err(cause) = host::start_thread(py)? else {
        return Ok(());
    };
    executor.dismiss();
    if !cause.is_instance_of::<PyException>(py) {
        // Ctrl-C is the caller's.
        return Err(cause);
    }
    let refused = Refused::NoThread(io::Error::other(cause.to_string()));
    Err(raised(py, &foreign::refused(refused)))
}

/// What the lane calls when it wants one more thread.
pub(crate) fn ask() -> io::Result<()> {
    let executor =
        foreign::started().ok_or_else(|| io::Error::other("the runtime has not begun"))?;
    let job = Host::new(
        || {
            make_when_still(executor);
            Ok(())
        },
        None,
    );
    executor.push_loose(job).map_err(io::Error::other)
}

fn make_when_still(executor: &'static Executor) {
    let Ok(roll) = foreign::state::<host::Lane>().map(|lane| &lane.roll) else {
        return;
    };
    let cores = foreign::cores();
    let (mut still, mut refused) = (STILL, false);
    loop {
        let [_, _, threads] = executor.threads();
        let few = threads <= cores;
        if !few {
            let before = executor.foreign_progress();
            thread::park_timeout(still);
            if executor.dismiss_if_idle() {
                return;
            }
            if executor.foreign_progress() != before || roll.running(cores) >= cores {
                continue;
            }
        }
        let asked = Instant::now();
        let made = gate::attached(|py| {
            let is_in_heavy_use = asked.elapsed() > SOON;
            if !few && is_in_heavy_use && still < STILL_IN_HEAVY_USE {
                return Ok(false);
            }
            host::start_thread(py).map_or(Ok(true), |started| started.map(|()| true))
        });
        match made {
            Ok(true) => return,
            Ok(false) => still = STILL_IN_HEAVY_USE,
            Err(error) => {
                if !std::mem::replace(&mut refused, true) {
                    tracing::warn!("no thread can be started for waiting functions yet: {error}");
                }
                thread::park_timeout(RETRY);
            }
        }
    }
}
