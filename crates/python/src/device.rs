//! Devices.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::exceptions::raised;
use crate::html::{self, bytes, figure, text};

/// One device of this machine, such as the CPU.
///
/// Devices compare, hash, print and pickle by kind and index. Get one from `Device.parse` or
/// `devices`.
///
/// Examples
/// --------
/// >>> from clika_runtime import Device
/// >>> Device.parse("CPU") == Device.parse("cpu:0")
/// True
/// >>> print(Device.parse("cpu"))
/// cpu:0
#[pyclass(frozen, eq, hash, ord, weakref, module = "clika_runtime._core")]
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Device(pub(crate) clika_runtime::Device);

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(*args, **kwargs)")]
    fn new(
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Self> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a Device is not constructed: use Device.parse('cpu:0') or devices()",
        ))
    }

    /// The device that a text names.
    ///
    /// Parameters
    /// ----------
    /// text : str
    ///     A kind, in any case, with or without an index: ``"cpu"``, ``"cpu:0"``, ``"CUDA:1"``.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If the text is unknown or the device is not there. The message lists what is there.
    ///
    /// Examples
    /// --------
    /// >>> Device.parse("cpu:0")
    /// Device('cpu:0')
    #[staticmethod]
    fn parse(text: &Bound<'_, PyString>) -> PyResult<Self> {
        // A text that is not Unicode names no device, and its lossy form serves for the message.
        let parsed = text.to_string_lossy().parse();
        parsed.map(Self).map_err(|error| raised(text.py(), &error))
    }

    /// The kind: ``"cpu"``, ``"vulkan"`` or ``"cuda"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind().as_str()
    }

    /// The position among the devices of its kind, from zero.
    #[getter]
    fn index(&self) -> u32 {
        self.0.index()
    }

    /// What its maker calls it.
    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }

    /// Its memory in bytes; for the CPU, what this process may use.
    #[getter]
    fn total_memory(&self) -> u64 {
        self.0.total_memory()
    }

    /// How many parts of it compute side by side: for the CPU, the cores this process may use.
    #[getter]
    fn compute_units(&self) -> usize {
        self.0.compute_units()
    }

    /// The version of its driver; None for the CPU, which needs none.
    #[getter]
    fn driver_version(&self) -> Option<String> {
        self.0.driver_version()
    }

    /// The number formats that it computes in, by NumPy's names.
    #[getter]
    fn formats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.formats())
    }

    /// Extensions of its instruction set, such as ``"avx2"``; empty where none is known.
    #[getter]
    fn instruction_sets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.instruction_sets())
    }

    fn __repr__(&self) -> String {
        format!("Device('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn _repr_html_(&self) -> String {
        let mut facts = vec![
            ("device", text(self.0)),
            ("name", text(self.0.name())),
            ("memory", bytes(self.0.total_memory())),
            ("compute units", figure(self.0.compute_units())),
            ("formats", text(self.0.formats().join(", "))),
        ];
        if let Some(version) = self.0.driver_version() {
            facts.push(("driver", text(version)));
        }
        let instruction_sets = self.0.instruction_sets();
        if !instruction_sets.is_empty() {
            facts.push(("instruction sets", text(instruction_sets.join(", "))));
        }
        html::facts(facts)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let parse = py.get_type::<Self>().getattr("parse")?;
        Ok((parse, (self.0.to_string(),)))
    }
}

/// The devices of this machine, the CPU first.
///
/// Listing starts no driver and no thread, and never breaks a later fork.
///
/// Returns
/// -------
/// list of Device
///
/// Examples
/// --------
/// >>> from clika_runtime import devices
/// >>> [device.kind for device in devices()]
/// ['cpu']
#[pyfunction]
pub(crate) fn devices() -> Vec<Device> {
    clika_runtime::devices().into_iter().map(Device).collect()
}
