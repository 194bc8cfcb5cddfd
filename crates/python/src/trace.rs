//! Traces, seen from Python.

use std::path::PathBuf;

use clika_runtime::foreign;
use pyo3::prelude::*;

use crate::exceptions::{invalid_argument, raised};
use crate::gate::detached;
use crate::guarded::Guarded;
use crate::logging;

/// A trace of all streams. Made by `trace`.
///
/// Examples
/// --------
/// >>> import tempfile
/// >>> from clika_runtime import trace
/// >>> trace("timeline.json")
/// <Trace to 'timeline.json': not started>
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     everything = trace(folder + "/timeline.json")
/// ...     everything.start()
/// ...     everything.stop()
#[pyclass(frozen, weakref, module = "clika_runtime._core")]
pub(crate) struct Trace {
    path: PathBuf,
    running: Guarded<Option<clika_runtime::Trace>>,
}

/// A trace of all streams, for a timeline: a context manager, which writes the file while it is entered.
///
/// The file is in Chrome's trace format: open it in Perfetto or a browser's own viewer, or make a page of
/// it by ``clikart timeline``. It has a track for each stream and a slice for each operation that
/// ended while the trace was being written; wait for the streams before leaving to have them all. What
/// is in it, a JSON schema says: ``trace.schema.json``, which lies beside this package's code. There
/// is one trace at a time. ``CLIKA_TRACE=path`` in the environment writes one from the first use of the
/// runtime to the end of the program.
///
/// Parameters
/// ----------
/// path : str or os.PathLike
///     The file, which is made anew.
///
/// Returns
/// -------
/// Trace
///     To be entered by ``with``, or to be started and stopped.
///
/// Raises
/// ------
/// InvalidArgumentError
///     On entering or starting, if the file cannot be written, or another trace is being written.
/// DeviceError
///     On leaving or stopping, if the file could not be written to its end.
///
/// Examples
/// --------
/// >>> import tempfile
/// >>> from pathlib import Path
/// >>> from clika_runtime import Device, Stream, trace
/// >>> stream = Stream.create(Device.parse("cpu"), name="sums")
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     path = Path(folder, "trace.json")
/// ...     with trace(path):
/// ...         total = stream.submit(sum, [1, 2, 3]).result()
/// ...         stream.synchronize()
/// ...     text = path.read_text()
/// >>> '"name":"sum","cat":"python"' in text
/// True
#[pyfunction]
pub(crate) fn trace(path: PathBuf) -> Trace {
    Trace {
        path,
        running: Guarded::new(None),
    }
}

#[pymethods]
impl Trace {
    /// Begins to write the file.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If the file cannot be written, or a trace is being written already.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        logging::look_at_level(py)?;
        let started = detached(py, || clika_runtime::trace(&self.path));
        let started = started.map_err(|error| raised(py, &error))?;
        self.running.with(py, |running| *running = Some(started));
        Ok(())
    }

    /// Ends the trace: the file is complete when this returns.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If it was not started.
    /// DeviceError
    ///     If the file could not be written to its end.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(running) = self.running.with(py, Option::take) else {
            return Err(invalid_argument(
                py,
                "this trace is not being written: start it first",
            ));
        };
        detached(py, || running.stop()).map_err(|error| raised(py, &error))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().start(slf.py())?;
        Ok(slf.clone())
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.stop(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let is_running = self.running.with(py, |running| running.is_some());
        let state = if is_running {
            "being written"
        } else {
            "not started"
        };
        format!("<Trace to '{}': {state}>", self.path.display())
    }
}

/// At the end of the interpreter.
pub(crate) fn finish(py: Python<'_>) {
    if let Err(error) = detached(py, foreign::stop_trace) {
        raised(py, &error).write_unraisable(py, None);
    }
}
