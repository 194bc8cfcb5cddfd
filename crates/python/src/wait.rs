//! Waiting for points: detached from the interpreter, and open to Ctrl-C.

use std::time::{Duration, Instant};

use clika_runtime::Error;
use clika_runtime::foreign::{self, Point, Position, Positions, Visitor, Wait};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::exceptions::{invalid_argument, raised};
use crate::gate::detached;
use crate::number;

/// How long a thread waits before it looks for signals. Ctrl-C is answered within 0.2 s.
const SLICE: Duration = Duration::from_millis(50);

/// When a wait ends. `None`: never by itself.
pub(crate) type Deadline = Option<Instant>;

/// The deadline that a `timeout` argument means: seconds, or None.
pub(crate) fn deadline(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Deadline> {
    let Some(timeout) = timeout.filter(|timeout| !timeout.is_none()) else {
        return Ok(None);
    };
    let py = timeout.py();
    let seconds = number::float(timeout).map_err(|error| {
        if timeout.is_instance_of::<PyInt>() && error.is_instance_of::<PyOverflowError>(py) {
            invalid_argument(py, "timeout is too large: pass None to wait for ever")
        } else {
            error
        }
    })?;
    let Some(seconds) = seconds else {
        return Err(PyTypeError::new_err(format!(
            "timeout must be a number of seconds or None, not {}",
            timeout.get_type().name()?
        )));
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(invalid_argument(
            py,
            format!("timeout must not be negative or NaN, but is {seconds}: pass seconds or None"),
        ));
    }
    // What does not fit into a time is longer than anybody waits.
    let duration = Duration::try_from_secs_f64(seconds).ok();
    Ok(duration.and_then(|duration| Instant::now().checked_add(duration)))
}

/// Blocks until `position` is reached, or `given_up` holds, which is asked now and then. `false`: the
/// deadline passed first.
fn reach(
    py: Python<'_>,
    position: &Position,
    deadline: Deadline,
    given_up: impl Fn() -> bool,
) -> PyResult<bool> {
    if position.is_reached() {
        return Ok(true);
    }
    let mut wait = begin(py, position)?;
    in_slices(py, deadline, given_up, |until| wait.until(until))
}

/// Begins a wait that can end.
fn begin<'a>(py: Python<'_>, position: &'a Position) -> PyResult<Wait<'a>> {
    let strand = position.strand();
    strand
        .admit()
        .map_err(|refused| raised(py, &foreign::refused(refused)))?;
    position
        .wait()
        .map_err(|_| raised(py, &foreign::deadlock(strand)))
}

/// Refuses a wait for `point` that could never end, without beginning it: for waits that an event
/// loop does.
pub(crate) fn refuse_deadlock(py: Python<'_>, point: &Point) -> PyResult<()> {
    if point.is_reached() {
        return Ok(());
    }
    begin(py, point.position()).map(drop)
}

/// Blocks until `point` is reached. A passed deadline is a `TimeoutError`.
pub(crate) fn reach_in_time(py: Python<'_>, point: &Point, deadline: Deadline) -> PyResult<()> {
    reach_unless(py, point, deadline, || false)
}

/// As [`reach_in_time`]; returns early when `given_up` holds.
pub(crate) fn reach_unless(
    py: Python<'_>,
    point: &Point,
    deadline: Deadline,
    given_up: impl Fn() -> bool,
) -> PyResult<()> {
    if reach(py, point.position(), deadline, given_up)? {
        return Ok(());
    }
    Err(raised(py, &foreign::timed_out(point)))
}

/// Blocks until a position is reached, whatever failed there.
pub(crate) fn reach_position(py: Python<'_>, position: &Position) -> PyResult<()> {
    reach(py, position, None, || false).map(drop)
}

/// Blocks until `ahead` names nothing more to wait for.
pub(crate) fn reach_all(
    py: Python<'_>,
    mut ahead: impl FnMut() -> Result<Positions, Error>,
) -> PyResult<()> {
    loop {
        let positions = ahead().map_err(|error| raised(py, &error))?;
        if positions.is_empty() {
            return Ok(());
        }
        for position in &positions {
            reach_position(py, position)?;
        }
    }
}

/// Blocks until it is the visitor's turn. Ctrl-C before that withdraws the operation.
pub(crate) fn take_turn(py: Python<'_>, visitor: &Visitor) -> PyResult<()> {
    in_slices(py, None, || false, |until| visitor.until(until)).map(drop)
}

/// Calls `wait` with ever later ends until it returns true, `given_up` does, or the deadline passes.
fn in_slices(
    py: Python<'_>,
    deadline: Deadline,
    given_up: impl Fn() -> bool,
    mut wait: impl FnMut(Option<Instant>) -> bool + Send,
) -> PyResult<bool> {
    loop {
        let slice = Instant::now() + SLICE;
        let end = deadline.map_or(slice, |deadline| deadline.min(slice));
        let wait = &mut wait;
        if detached(py, move || wait(Some(end))) {
            return Ok(true);
        }
        py.check_signals()?;
        if given_up() {
            return Ok(true);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(false);
        }
    }
}
