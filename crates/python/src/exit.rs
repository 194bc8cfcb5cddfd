//! The end of the interpreter, and forks.
//!
//! The exit hook runs after the non-daemon threads have ended:
//! 1. it drains pending work, up to `CLIKA_EXIT_TIMEOUT`;
//! 2. it closes the runtime: what has not begun is dropped, its futures say so;
//! 3. it reports the failures that nobody acknowledged;
//! 4. it ends the trace, if one is being written, and hands over what the log still holds;
//! 5. it closes the gate: no thread of ours attaches again.

use std::time::{Duration, Instant};

use clika_runtime::foreign;
use pyo3::prelude::*;

use crate::gate;
use crate::host::report;
use crate::logging;
use crate::trace;

/// Registered with `atexit`.
#[pyfunction]
pub(crate) fn _finish(py: Python<'_>) -> PyResult<()> {
    let interrupted = foreign::started().map_or(Ok(()), |executor| {
        let drained = drain(py, executor);
        gate::close_here(|| executor.close());
        for failure in executor.take_unacknowledged() {
            report(py, &failure);
        }
        trace::finish(py);
        logging::finish(py);
        drained
    });
    gate::close(py);
    interrupted
}

fn drain(py: Python<'_>, executor: &foreign::Executor) -> PyResult<()> {
    const SLICE: Duration = Duration::from_millis(50);
    let timeout = foreign::exit_timeout().unwrap_or_default();
    let deadline = Instant::now() + timeout;
    loop {
        let end = deadline.min(Instant::now() + SLICE);
        if py.detach(|| executor.drain(Some(end))) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            tracing::warn!(
                "the program ends before all of its work: what has not begun within {} s is dropped \
                 (CLIKA_EXIT_TIMEOUT)",
                timeout.as_secs_f64()
            );
            return Ok(());
        }
        py.check_signals()?;
    }
}

/// Registered to run in a forked child.
#[pyfunction]
pub(crate) fn _after_fork() {
    gate::reset();
}

/// Registers both.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.import("atexit")?
        .call_method1("register", (module.getattr("_finish")?,))?;
    let hooks = pyo3::types::PyDict::new(py);
    hooks.set_item("after_in_child", module.getattr("_after_fork")?)?;
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        os.call_method("register_at_fork", (), Some(&hooks))?;
    }
    Ok(())
}
