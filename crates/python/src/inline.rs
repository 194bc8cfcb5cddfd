//! Work on the default stream, which the calling thread runs itself.
//!
//! The class of default streams is Python code over `Stream` (`_host.DefaultStream`), for the same
//! reason as the host lane's loop: no Rust frame lies under the user's function.

use std::sync::{Mutex, PoisonError};

use clika_runtime::foreign::{self, Inside};
use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::exceptions::raised;
use crate::function;
use crate::future::{self, FutureBase, Outcome, Parts};
use crate::gate::Section;
use crate::host;
use crate::own::Own;
use crate::site;
use crate::stream::{Stream, checked_call};
use crate::wait::{reach_all, take_turn};

/// The stream under the object that is being made; the interpreter lock keeps makers apart.
static STREAM: Mutex<Option<clika_runtime::Stream>> = Mutex::new(None);

/// What `Stream.__new__` makes, if it was called from here.
pub(crate) fn constructing() -> Option<Stream> {
    STREAM
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .map(Stream)
}

/// The default stream of `device`.
pub(crate) fn default_stream(
    py: Python<'_>,
    device: clika_runtime::Device,
) -> PyResult<Bound<'_, PyAny>> {
    let class = host::python(py)?.getattr("DefaultStream")?;
    let stream =
        clika_runtime::Stream::default_stream(device).map_err(|error| raised(py, &error))?;
    *STREAM.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    class.call0()
}

/// The calling thread inside its work on the default stream.
#[pyclass(module = "clika_runtime._core")]
pub(crate) struct Visit(Own<Stay>);

/// What the thread ends its work with.
struct Stay {
    future: Option<Py<FutureBase>>,
    place: Option<Place>,
    /// The function that the thread was inside of before.
    before: u64,
}

enum Place {
    /// It holds the stream's turn.
    Turn(Inside),
    /// It is inside the stream's own operation.
    Within,
}

/// Waits for the turn. The visit is missing where the work is to be skipped.
pub(crate) fn enter<'py>(
    stream: &Bound<'py, Stream>,
    args: Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    isolated: bool,
) -> PyResult<(Bound<'py, FutureBase>, Option<Visit>)> {
    let py = stream.py();
    let buffers = function::arguments(&args, kwargs);
    let call = checked_call(args, kwargs)?;
    let site = site::of_caller(py);
    let parts = Parts {
        stream: stream.clone().unbind(),
        call: call.unbind(),
        site,
        isolated,
        buffers,
    };
    let future = future::make(py, parts)?;
    let native = &stream.get().0;
    let place = match foreign::strand(native).inside() {
        Some(n) => enter_within(native, &future, n)?,
        None => enter_in_turn(native, &future)?,
    };
    let Some(place) = place else {
        return Ok((future, None));
    };
    let _ = future.get().begin(py);
    let begun = future.get().begin_uses(py);
    let mut stay = Stay {
        future: Some(future.clone().unbind()),
        place: Some(place),
        before: foreign::enter_function(future.get().function()),
    };
    if let Err(failure) = begun {
        stay.end(py, Outcome::Refused(&failure));
        return Ok((future, None));
    }
    Ok((future, Some(Visit(Own::new(stay)))))
}

fn enter_within(
    stream: &clika_runtime::Stream,
    future: &Bound<'_, FutureBase>,
    n: u64,
) -> PyResult<Option<Place>> {
    let py = future.py();
    future.get().submitted_within(n);
    if let Some(failure) = foreign::strand(stream).point().failure() {
        FutureBase::resolve(future, Outcome::Skipped(&failure));
        return Ok(None);
    }
    let enter = |buffers: &foreign::Arguments| buffers.enter_within(stream, n);
    reach_all(py, || future.get().with_buffers(py, enter))?;
    Ok(Some(Place::Within))
}

fn enter_in_turn(
    stream: &clika_runtime::Stream,
    future: &Bound<'_, FutureBase>,
) -> PyResult<Option<Place>> {
    let py = future.py();
    let enter = |buffers: &foreign::Arguments| buffers.enter(stream);
    let visitor = future.get().with_buffers(py, enter);
    let visitor = visitor.map_err(|error| raised(py, &error))?;
    take_turn(py, &visitor)?;
    future.get().submitted(visitor.point().n());
    match visitor.enter_as(|| future.get().describe_to_trace(py)) {
        Ok(inside) => Ok(Some(Place::Turn(inside))),
        Err(failure) => {
            FutureBase::resolve(future, Outcome::Skipped(&failure));
            Ok(None)
        }
    }
}

impl Stay {
    fn end(&mut self, py: Python<'_>, outcome: Outcome<'_>) {
        let (Some(future), Some(place)) = (self.future.take(), self.place.take()) else {
            return;
        };
        foreign::leave_function(self.before);
        let future = future.into_bound(py);
        let resolved = FutureBase::resolve(&future, outcome);
        if let Some(fault) = resolved.fault {
            // Not by ending the turn: work inside it may have had a failure of its own, which was
            // acknowledged.
            let (stream, n) = (future.get().stream(py), future.get().number());
            foreign::strand(&stream.get().0).fail_within(n, fault);
        }
        if let Place::Turn(inside) = place {
            if let Some(fault) = resolved.told {
                inside.tell(fault);
            }
            inside.finish(Ok(()));
        }
        if resolved.is_watched {
            let posted = FutureBase::notice(&future).and_then(|notice| host::post(py, notice));
            if let Err(error) = posted {
                error.write_unraisable(py, Some(future.as_any()));
            }
        }
    }
}

#[pymethods]
impl Visit {
    /// The work returned this.
    fn done(&mut self, py: Python<'_>, value: Bound<'_, PyAny>) -> PyResult<()> {
        self.0.get()?.end(py, Outcome::Value(value));
        Ok(())
    }

    /// The work raised this. Ctrl-C is the caller's, who gets it at once.
    fn failed(&mut self, py: Python<'_>, exception: Bound<'_, PyBaseException>) -> PyResult<bool> {
        let _section = Section::begin(py);
        let interrupted = exception.is_instance_of::<PyKeyboardInterrupt>();
        if !interrupted {
            host::strip_own_frame(&exception)?;
        }
        let stay = self.0.get()?;
        let future = stay.future.as_ref().map(|future| future.clone_ref(py));
        stay.end(py, Outcome::Raised(exception.clone()));
        if let Some(future) = future.filter(|_| interrupted) {
            future.get().acknowledge(&exception.unbind());
        }
        Ok(interrupted)
    }
}
