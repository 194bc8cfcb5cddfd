//! The compiled half of the Python package `clika_runtime`: one file per concept.

mod buffer;
mod context;
mod device;
mod event;
mod exceptions;
mod exit;
mod failure;
mod function;
mod future;
mod gate;
mod guarded;
mod host;
mod html;
mod inline;
mod interpreter;
mod logging;
mod number;
mod own;
mod recruiter;
mod site;
mod stats;
mod stream;
mod trace;
mod wait;

use std::ffi::OsString;

use clika_runtime::foreign;
use pyo3::prelude::*;

/// Where the classes say that they live.
const MODULE: &str = "clika_runtime._core";

/// Runs the command line `clikart`: its exit status. The first argument is the name of the program.
#[pyfunction]
fn _clikart(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    gate::detached(py, || clika_cli::run(arguments))
}

/// Execution streams: ordered, asynchronous queues of device work.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::admit(module.py())?;
    foreign::bind(foreign::Binding {
        reporter: host::reporter,
        recruiter: recruiter::ask,
    });
    module.add_class::<device::Device>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<event::Event>()?;
    module.add("Future", future::class(module.py())?)?;
    module.add_class::<stats::StreamStats>()?;
    module.add_class::<stats::MemoryStats>()?;
    module.add_class::<stats::Stats>()?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<host::HostThread>()?;
    module.add_class::<inline::Visit>()?;
    module.add_class::<event::Mark>()?;
    module.add_function(wrap_pyfunction!(device::devices, module)?)?;
    module.add_function(wrap_pyfunction!(context::current_stream, module)?)?;
    module.add_function(wrap_pyfunction!(stats::memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(buffer::release_memory, module)?)?;
    module.add_function(wrap_pyfunction!(stats::stats, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace, module)?)?;
    module.add_function(wrap_pyfunction!(_clikart, module)?)?;
    module.add_function(wrap_pyfunction!(event::_mark, module)?)?;
    module.add_function(wrap_pyfunction!(logging::_take_log, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_finish, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_after_fork, module)?)?;
    exceptions::add_to(module)?;
    logging::begin(module.py())?;
    exit::register(module)
}
