//! Buffers: device memory, seen from Python.
#![allow(
    unsafe_code,
    reason = "the buffer protocol speaks in pointers; each block states its reason"
)]

use std::ffi::{c_char, c_int};
use std::ops::Range;
use std::ptr::{self, NonNull};

use clika_runtime::Error;
use clika_runtime::foreign::{self, Missing, Point, Transfer, ViewRequest};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyMemoryView};
use pyo3::{PyTraverseError, PyVisit};
use smallvec::{SmallVec, smallvec};

use crate::context;
use crate::device::Device;
use crate::exceptions::{failed, invalid_argument, out_of_memory, raised, skipped};
use crate::failure::exception_of;
use crate::gate::detached;
use crate::number;
use crate::site;
use crate::stream::{Stream, device_of};
use crate::wait::{reach_all, reach_in_time, reach_position, take_turn};

/// Device memory that streams share.
///
/// A buffer has a size and no place yet: the first operation that writes to it allocates it, when it
/// runs, and its last user gives the memory back. So a chain of temporaries that is submitted far
/// ahead holds few blocks at any time.
///
/// Operations that conflict, on whatever streams, run in the order in which they were submitted. No
/// event is needed for what data shows. A buffer among the arguments of `Stream.submit`, also inside
/// a list, tuple or dict, counts as read and written by the function, and access to it inside the
/// function is direct. Access to other buffers inside a function waits for what was submitted before
/// the function, and for nothing behind it; it is made at once, on no stream, unless the function
/// makes a created stream the current one.
///
/// What a failed function should have written has failed too: whoever reads it fails with the same
/// origin, until all of it is overwritten.
///
/// Examples
/// --------
/// >>> from clika_runtime import Buffer, Device, Stream
/// >>> pixels = Buffer.from_data(b"\x01\x02\x03")
/// >>> def invert(pixels):
/// ...     view = pixels.view(writable=True)
/// ...     for i, value in enumerate(view):
/// ...         view[i] = 255 - value
/// >>> stream = Stream.create(Device.parse("cpu"))
/// >>> done = stream.submit(invert, pixels)
/// >>> pixels.to_bytes()
/// b'\xfe\xfd\xfc'
#[pyclass(frozen, weakref, module = "clika_runtime._core")]
pub(crate) struct Buffer(pub(crate) clika_runtime::Buffer);

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(*args, **kwargs)")]
    fn new(
        _args: &Bound<'_, pyo3::types::PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(PyTypeError::new_err(
            "a Buffer is not constructed: use Buffer.from_data(obj) for one that holds a copy, or \
             Buffer.empty(nbytes, device) for one to be written to",
        ))
    }

    /// A buffer that holds a copy of an object's bytes, made now.
    ///
    /// Parameters
    /// ----------
    /// obj : bytes-like
    ///     Anything with the buffer protocol, C-contiguous: bytes, bytearray, memoryview, array, a
    ///     NumPy array.
    /// device : Device, optional
    ///     Where the buffer is. The CPU if none is given.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If the bytes do not lie one behind the other.
    /// OutOfMemoryError
    ///     If there is no memory for it.
    ///
    /// Examples
    /// --------
    /// >>> Buffer.from_data(bytearray(4)).nbytes
    /// 4
    #[staticmethod]
    #[pyo3(signature = (obj, device=None))]
    fn from_data(
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let device = device.map_or(Ok(clika_runtime::Device::cpu()), device_of)?;
        let source = Bytes::of(obj)?;
        // SAFETY: the bytes stay where they are while `source` lives.
        let bytes = unsafe { source.slice(0..source.len()) };
        let make = || clika_runtime::Buffer::from_slice(device, bytes);
        let made = detached_if_large(py, bytes.len(), make);
        source.release(py);
        made.map(Self).map_err(|error| raised(py, &error))
    }

    /// A buffer that nothing was written to. Costs no memory yet.
    ///
    /// Parameters
    /// ----------
    /// nbytes : int
    ///     Its size in bytes.
    /// device : Device
    ///     Where it is.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If no memory could ever be that large.
    ///
    /// Examples
    /// --------
    /// >>> Buffer.empty(1024, Device.parse("cpu"))
    /// <Buffer of 1024 bytes on cpu:0>
    #[staticmethod]
    fn empty(
        py: Python<'_>,
        nbytes: &Bound<'_, PyAny>,
        device: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let nbytes = size(nbytes, "nbytes")?;
        let device = device_of(device)?;
        clika_runtime::Buffer::new(device, nbytes)
            .map(Self)
            .map_err(|error| raised(py, &error))
    }

    /// Its size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// The device that its memory is on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device())
    }

    /// Fills it, or a part of it, with copies of one pattern, on the current stream of its device.
    ///
    /// Parameters
    /// ----------
    /// value : int or bytes
    ///     One byte, 0 to 255, or a pattern of 1, 2, 4 or 8 bytes.
    /// offset : int, default 0
    ///     Where to begin, in bytes.
    /// nbytes : int, optional
    ///     How much to fill. To the end if none is given.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     For a range that is not within the buffer or holds no whole number of patterns, or while
    ///     the buffer is being viewed.
    ///
    /// Examples
    /// --------
    /// >>> zeros = Buffer.empty(4, Device.parse("cpu"))
    /// >>> zeros.fill(0)
    /// >>> zeros.fill(b"\x01\x02", offset=2)
    /// >>> zeros.to_bytes()
    /// b'\x00\x00\x01\x02'
    #[pyo3(signature = (value, *, offset=None, nbytes=None))]
    fn fill(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        nbytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let pattern = pattern(value)?;
        let range = self.range(offset, nbytes)?;
        submit(py, &self.0, Transfer::fill(&self.0, range, &pattern))
    }

    /// Copies bytes into it, on the current stream of its device.
    ///
    /// Parameters
    /// ----------
    /// source : bytes-like or Buffer
    ///     A bytes-like object has been read when the call returns.
    /// offset : int, default 0
    ///     Where to copy to, in bytes.
    /// source_offset : int, default 0
    ///     Where to begin in the source, in bytes.
    /// nbytes : int, optional
    ///     How much to copy. To the end of the source if none is given.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     For ranges that are not within their buffers or overlap, for bytes that do not lie one
    ///     behind the other, for a source that nothing was written to, or while this buffer is being
    ///     viewed.
    ///
    /// Examples
    /// --------
    /// >>> letters = Buffer.from_data(b"........")
    /// >>> letters.copy_from(b"abc", offset=1)
    /// >>> letters.copy_from(letters, offset=5, source_offset=1, nbytes=2)
    /// >>> letters.to_bytes()
    /// b'.abc.ab.'
    #[pyo3(signature = (source, *, offset=None, source_offset=None, nbytes=None))]
    fn copy_from(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        source_offset: Option<&Bound<'_, PyAny>>,
        nbytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let offset = start(offset, "offset")?;
        if let Ok(source) = source.cast::<Self>() {
            let source = &source.get().0;
            let from = range(source.nbytes(), source_offset, "source_offset", nbytes)?;
            return copy(py, source, from, &self.0, offset);
        }
        let bytes = Bytes::of(source)?;
        let from = range(bytes.len(), source_offset, "source_offset", nbytes)?;
        bytes.check(py, &from)?;
        // SAFETY: the bytes stay where they are while `bytes` lives.
        let slice = unsafe { bytes.slice(from) };
        let copy = || Transfer::copy_in(slice, &self.0, offset);
        let transfer = detached_if_large(py, slice.len(), copy);
        bytes.release(py);
        submit(py, &self.0, transfer)
    }

    /// Copies its bytes out, on the current stream of its device. To a bytes-like object, the call
    /// waits until it is done.
    ///
    /// Parameters
    /// ----------
    /// target : writable bytes-like or Buffer
    ///     Where to copy to.
    /// offset : int, default 0
    ///     Where to begin in this buffer, in bytes.
    /// target_offset : int, default 0
    ///     Where to copy to, in bytes.
    /// nbytes : int, optional
    ///     How much to copy. To the end of this buffer if none is given.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     For ranges that are not within their buffers or overlap, for a target that is read-only or
    ///     whose bytes do not lie one behind the other, or if nothing was written to this buffer.
    /// BaseException
    ///     What failed work raised that should have written this buffer.
    ///
    /// Examples
    /// --------
    /// >>> target = bytearray(4)
    /// >>> Buffer.from_data(b"abc").copy_to(target, target_offset=1)
    /// >>> target
    /// bytearray(b'\x00abc')
    #[pyo3(signature = (target, *, offset=None, target_offset=None, nbytes=None))]
    fn copy_to(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        target_offset: Option<&Bound<'_, PyAny>>,
        nbytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let from = self.range(offset, nbytes)?;
        let target_offset = start(target_offset, "target_offset")?;
        if let Ok(target) = target.cast::<Self>() {
            return copy(py, &self.0, from, &target.get().0, target_offset);
        }
        let bytes = Bytes::of(target)?;
        if bytes.readonly() {
            return Err(invalid_argument(
                py,
                "the target is read-only: copy to a bytearray or an array, or use to_bytes()",
            ));
        }
        let end = target_offset.saturating_add(from.len());
        bytes.check(py, &(target_offset..end))?;
        // SAFETY: the range was just checked to lie within, and `bytes` outlives the copy, which
        // has let go of it when `read` returns.
        let copied = unsafe { read(py, &self.0, from, bytes.start().byte_add(target_offset)) };
        bytes.release(py);
        copied
    }

    /// A copy of its bytes, made on the current stream of its device, once everything submitted so far
    /// that writes to it has run.
    ///
    /// Returns
    /// -------
    /// bytes
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     If nothing was written to it.
    /// BaseException
    ///     What failed work raised that should have written it.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let nbytes = self.0.nbytes();
        let room = PyBytes::new_with(py, nbytes, |_| Ok(()))
            .map_err(|_| out_of_memory(py, format!("the host has no room for {nbytes} bytes")))?;
        // SAFETY: these bytes are nobody else's yet, and the copy has let go of them when `read`
        // returns.
        unsafe {
            let start = NonNull::new(ffi::PyBytes_AsString(room.as_ptr()).cast());
            read(py, &self.0, 0..nbytes, start.unwrap_or(NonNull::dangling()))?;
        }
        Ok(room)
    }

    /// A memoryview of its bytes, once everything submitted so far that conflicts with that has run.
    ///
    /// While a view lives, submitting a write to the buffer is an `InvalidArgumentError`, and while a
    /// writable one does, any use. Release it, or let go of it and of the arrays over it.
    /// ``memoryview(buffer)`` gives a read-only one.
    ///
    /// Parameters
    /// ----------
    /// writable : bool, default False
    ///     Whether the host may write through it.
    ///
    /// Returns
    /// -------
    /// memoryview
    ///
    /// Examples
    /// --------
    /// >>> buffer = Buffer.from_data(b"abc")
    /// >>> with buffer.view(writable=True) as view:
    /// ...     view[0] = ord("A")
    /// >>> buffer.to_bytes()
    /// b'Abc'
    #[pyo3(signature = (*, writable=false))]
    fn view<'py>(slf: &Bound<'py, Self>, writable: bool) -> PyResult<Bound<'py, PyMemoryView>> {
        if !writable {
            return PyMemoryView::from(slf.as_any());
        }
        let window = Window(slf.clone().unbind());
        PyMemoryView::from(Bound::new(slf.py(), window)?.as_any())
    }

    fn __len__(&self) -> usize {
        self.0.nbytes()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.get().0.address()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Buffer of {} bytes on {}>",
            self.0.nbytes(),
            self.0.device()
        )
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Buffer cannot be pickled or copied: send its to_bytes(), and call Buffer.from_data \
             there",
        ))
    }

    /// A failure that only this buffer holds leads to frames, and from there maybe back here.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let visited = foreign::with_sole_failure(&self.0, |failure| {
            exception_of(failure).map_or(Ok(()), |exception| visit.call(exception))
        });
        visited.unwrap_or(Ok(()))
    }

    /// Nobody can read what failed any more.
    fn __clear__(&self) {
        foreign::forget_sole_failure(&self.0);
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            // SAFETY: promised by the interpreter.
            unsafe { (*view).obj = ptr::null_mut() };
            return Err(PyBufferError::new_err(
                "a view of a Buffer is read-only unless asked for: use buffer.view(writable=True)",
            ));
        }
        // SAFETY: promised by the interpreter.
        unsafe { export(&slf.clone().into_any(), &slf.get().0, view, flags, false) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: promised by the interpreter: the view was exported by `__getbuffer__`.
        unsafe { release(view) };
    }
}

/// The object behind a writable memoryview.
#[pyclass(frozen, module = "clika_runtime._core")]
struct Window(Py<Buffer>);

#[pymethods]
impl Window {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let buffer = &slf.get().0.get().0;
        // SAFETY: promised by the interpreter.
        unsafe { export(&slf.clone().into_any(), buffer, view, flags, true) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: promised by the interpreter: the view was exported by `__getbuffer__`.
        unsafe { release(view) };
    }
}

/// Exports the bytes of a buffer, once it may be looked at.
///
/// # Safety
/// `view` may be written to.
unsafe fn export(
    owner: &Bound<'_, PyAny>,
    buffer: &clika_runtime::Buffer,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    writable: bool,
) -> PyResult<()> {
    let py = owner.py();
    // SAFETY: promised by the caller. An export that fails leaves no object.
    unsafe { (*view).obj = ptr::null_mut() };
    let mut request = ViewRequest::new(buffer, writable).map_err(|error| raised(py, &error))?;
    let raw = loop {
        for position in request.positions() {
            reach_position(py, position)?;
        }
        let attempt = detached_if_large(py, buffer.nbytes(), || request.attempt());
        if let Some(raw) = attempt.map_err(|missing| told(py, missing))? {
            break raw;
        }
    };
    let length = ffi::Py_ssize_t::try_from(raw.nbytes())?;
    let start = raw.start().as_ptr().cast();
    // SAFETY: the bytes stay there until the view is released; `owner` is alive.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            start,
            length,
            c_int::from(!writable),
            flags,
        )
    };
    if filled != 0 {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the view is filled, and this is the exporter's own field.
    unsafe { (*view).internal = Box::into_raw(Box::new(raw)).cast() };
    Ok(())
}

/// # Safety
/// `view` was filled by `export`.
unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: promised by the caller; released once.
    unsafe {
        let raw = (*view).internal.cast::<foreign::RawView>();
        (*view).internal = ptr::null_mut();
        drop(Box::from_raw(raw));
    }
}

impl Buffer {
    fn range(
        &self,
        offset: Option<&Bound<'_, PyAny>>,
        nbytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Range<usize>> {
        range(self.0.nbytes(), offset, "offset", nbytes)
    }
}

/// Copies of more bytes than this let go of the interpreter meanwhile.
const LARGE: usize = 1 << 18;

/// Calls `f`, which copies so many bytes.
fn detached_if_large<T: Send>(py: Python<'_>, nbytes: usize, f: impl FnOnce() -> T + Send) -> T {
    if nbytes > LARGE { detached(py, f) } else { f() }
}

/// The bytes of an object, exported. `PyUntypedBuffer` would refuse what has no dimensions.
struct Bytes(Box<ffi::Py_buffer>);

const C_ORDER: c_char = b'C' as c_char;

impl Bytes {
    fn of(obj: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = obj.py();
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the view may be written to, and stays where it is until it is released.
        if unsafe { ffi::PyObject_GetBuffer(obj.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) } != 0
        {
            return Err(PyErr::fetch(py));
        }
        let exported = Self(view);
        // SAFETY: the view is filled.
        let contiguous = unsafe { ffi::PyBuffer_IsContiguous(&raw const *exported.0, C_ORDER) };
        if contiguous == 0 {
            return Err(invalid_argument(
                py,
                "the bytes do not lie one behind the other: pass a contiguous copy, such as \
                 numpy.ascontiguousarray(array) makes",
            ));
        }
        Ok(exported)
    }

    fn len(&self) -> usize {
        self.0.len.unsigned_abs()
    }

    fn readonly(&self) -> bool {
        self.0.readonly != 0
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.0.buf.cast()).unwrap_or(NonNull::dangling())
    }

    fn check(&self, py: Python<'_>, range: &Range<usize>) -> PyResult<()> {
        if range.start <= range.end && range.end <= self.len() {
            return Ok(());
        }
        Err(invalid_argument(
            py,
            format!(
                "bytes {} to {} are not within an object of {} bytes",
                range.start,
                range.end,
                self.len()
            ),
        ))
    }

    /// # Safety
    /// The range lies within, and the result is gone before `self` is.
    unsafe fn slice<'a>(&self, range: Range<usize>) -> &'a [u8] {
        // SAFETY: promised by the caller; the object does not move its bytes while they are exported.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr().add(range.start), range.len()) }
    }

    /// At the end of a call, with the interpreter attached.
    fn release(self, _py: Python<'_>) {
        drop(self);
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the view is filled and released once; whoever has it is in a call from Python.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

/// A size or an offset: an integer that is not negative.
fn size(value: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    let py = value.py();
    if value.is_exact_instance_of::<PyInt>()
        && let Ok(size) = value.extract()
    {
        return Ok(size);
    }
    let Some(integer) = number::integer(value)? else {
        return Err(PyTypeError::new_err(format!(
            "{name} must be an integer number of bytes, not {}",
            value.get_type().name()?
        )));
    };
    integer.extract().map_err(|_| {
        invalid_argument(
            py,
            format!(
                "{name} is {integer}: pass a number of bytes that is not negative and fits memory"
            ),
        )
    })
}

/// An offset: none given is the beginning.
fn start(offset: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<usize> {
    offset.map_or(Ok(0), |offset| size(offset, name))
}

/// A range within `length` bytes, to the end if no size is given. Checked by whoever uses it.
fn range(
    length: usize,
    offset: Option<&Bound<'_, PyAny>>,
    name: &str,
    nbytes: Option<&Bound<'_, PyAny>>,
) -> PyResult<Range<usize>> {
    let start = start(offset, name)?;
    let end = match nbytes {
        Some(nbytes) => start.saturating_add(size(nbytes, "nbytes")?),
        // An offset behind the end is told as such.
        None => length.max(start),
    };
    Ok(start..end)
}

/// The bytes of a fill's pattern, of which there may be too many.
fn pattern(value: &Bound<'_, PyAny>) -> PyResult<SmallVec<[u8; 8]>> {
    let py = value.py();
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        let byte: u8 = value.extract().map_err(|_| {
            invalid_argument(
                py,
                format!("{value} is no byte: pass 0 to 255, or a pattern of 1, 2, 4 or 8 bytes"),
            )
        })?;
        return Ok(smallvec![byte]);
    }
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(SmallVec::from_slice(bytes.as_bytes())),
        Err(_) => Err(PyTypeError::new_err(format!(
            "value must be an integer from 0 to 255 or bytes, not {}",
            value.get_type().name()?
        ))),
    }
}

fn copy(
    py: Python<'_>,
    source: &clika_runtime::Buffer,
    from: Range<usize>,
    target: &clika_runtime::Buffer,
    offset: usize,
) -> PyResult<()> {
    let transfer = Transfer::copy(source, from.start, target, offset, from.len());
    submit(py, target, transfer)
}

/// Submits a transfer, if it can be, to the current stream of a buffer's device.
fn submit(
    py: Python<'_>,
    buffer: &clika_runtime::Buffer,
    transfer: Result<Transfer, Error>,
) -> PyResult<()> {
    let transfer = transfer.map_err(|error| raised(py, &error))?;
    let stream = current(py, buffer)?;
    let stream = &stream.get().0;
    match how(&transfer, stream) {
        How::Inside(function) => run_inside(py, function, transfer),
        How::Here => run_here(py, stream, transfer),
        How::There => transfer
            .submit(stream, site::of_caller(py))
            .map_err(|error| raised(py, &error)),
    }
}

/// How a transfer is done.
enum How {
    /// At once, inside the function of this number.
    Inside(u64),
    /// By the calling thread, on the default stream.
    Here,
    /// On a created stream.
    There,
}

fn how(transfer: &Transfer, stream: &clika_runtime::Stream) -> How {
    match foreign::current_function() {
        Some(function) if stream.is_default() || transfer.is_direct() => How::Inside(function),
        _ if stream.is_default() => How::Here,
        _ => How::There,
    }
}

/// Does a transfer inside a function: nothing that was submitted after the function comes before it.
fn run_inside(py: Python<'_>, function: u64, transfer: Transfer) -> PyResult<()> {
    let aside = transfer.aside(function);
    let mut aside = aside.map_err(|error| raised(py, &error))?;
    loop {
        for position in aside.positions() {
            reach_position(py, position)?;
        }
        let done = detached(py, || aside.attempt());
        if done.map_err(|missing| told(py, missing))? {
            return Ok(());
        }
    }
}

fn current<'py>(py: Python<'py>, buffer: &clika_runtime::Buffer) -> PyResult<Bound<'py, Stream>> {
    let stream = context::current(py, buffer.device())?;
    Ok(stream.cast_into::<Stream>()?)
}

/// Runs a transfer in the order of a default stream.
fn run_here(py: Python<'_>, stream: &clika_runtime::Stream, transfer: Transfer) -> PyResult<()> {
    let strand = foreign::strand(stream);
    if let Some(n) = strand.inside() {
        reach_all(py, || transfer.enter_within(stream, n))?;
        let site = site::of_caller(py);
        let Err(fault) = detached(py, || transfer.perform(site)) else {
            return Ok(());
        };
        return Err(failed(py, &strand.fail_within(n, fault)));
    }
    let site = site::of_caller(py);
    let visitor = transfer.enter(stream).map_err(|error| raised(py, &error))?;
    take_turn(py, &visitor)?;
    let point = visitor.point().clone();
    let inside = match visitor.enter_as(|| transfer.describe(site.clone())) {
        Ok(inside) => inside,
        Err(failure) => {
            transfer.skip(&failure);
            return Err(skipped(py, "a copy", &failure));
        }
    };
    let failure = detached(py, || transfer.perform(site))
        .err()
        .map(|fault| strand.fail_within(point.n(), fault));
    inside.finish(Ok(()));
    match failure {
        None => Ok(()),
        Some(failure) => {
            point.acknowledge();
            Err(failed(py, &failure))
        }
    }
}

/// Copies a range out of a buffer, and waits for that.
///
/// # Safety
/// As many bytes as the range has may be written from `target` on, by nobody else, until this
/// returns.
unsafe fn read(
    py: Python<'_>,
    buffer: &clika_runtime::Buffer,
    range: Range<usize>,
    target: NonNull<u8>,
) -> PyResult<()> {
    // SAFETY: promised by the caller; `wanted` is dropped below, at the latest.
    let copy = unsafe { Transfer::copy_out(buffer, range, target) };
    let (transfer, wanted) = copy.map_err(|error| raised(py, &error))?;
    let stream = current(py, buffer)?;
    let stream = &stream.get().0;
    let done = match how(&transfer, stream) {
        How::Inside(function) => run_inside(py, function, transfer),
        How::Here => run_here(py, stream, transfer),
        How::There => run_there(py, stream, transfer),
    };
    drop(wanted);
    done
}

/// Runs a transfer on a created stream, and waits for that.
fn run_there(py: Python<'_>, stream: &clika_runtime::Stream, transfer: Transfer) -> PyResult<()> {
    let pushed = transfer.push(stream, site::of_caller(py));
    let point = pushed.map_err(|error| raised(py, &error))?;
    reach_in_time(py, &point, None)?;
    settle(py, &point)
}

/// Raises the failure of the operation that ends at a point, which acknowledges it, or that of an
/// earlier one, for which it was skipped.
fn settle(py: Python<'_>, point: &Point) -> PyResult<()> {
    let Some(failure) = point.failure() else {
        return Ok(());
    };
    if !point.is_first_failed() {
        return Err(skipped(py, "a copy", &failure));
    }
    point.acknowledge();
    Err(failed(py, &failure))
}

fn told(py: Python<'_>, missing: Missing) -> PyErr {
    match missing {
        Missing::Failed(failure) => failed(py, &failure),
        Missing::Error(error) => raised(py, &error),
    }
}

/// Gives the memory that the pool of a device keeps for reuse back to the system.
///
/// Parameters
/// ----------
/// device : Device
///
/// Examples
/// --------
/// >>> from clika_runtime import memory_stats, release_memory
/// >>> release_memory(Device.parse("cpu"))
/// >>> memory_stats(Device.parse("cpu")).cached_bytes
/// 0
#[pyfunction]
pub(crate) fn release_memory(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    device_of(device)?
        .release_memory()
        .map_err(|error| raised(py, &error))
}
