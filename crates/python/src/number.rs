//! Numbers among the arguments. What a caller's own `__index__` or `__float__` raises goes through.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The integer that a value stands for, if its class has an `__index__`.
pub(crate) fn integer<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    if !has(value, intern!(py, "__index__"))? {
        return Ok(None);
    }
    let operator = py.import(intern!(py, "operator"))?;
    operator
        .call_method1(intern!(py, "index"), (value,))
        .map(Some)
}

/// The float that a value stands for, if its class has a `__float__` or an `__index__`.
pub(crate) fn float(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    value.extract().map(Some).or_else(|error| {
        let py = value.py();
        let is_number =
            has(value, intern!(py, "__float__"))? || has(value, intern!(py, "__index__"))?;
        if is_number { Err(error) } else { Ok(None) }
    })
}

/// Whether a value's class has this method.
fn has(value: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> PyResult<bool> {
    value.get_type().hasattr(method)
}
