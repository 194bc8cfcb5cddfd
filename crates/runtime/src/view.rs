//! Views: the host looks at the bytes of a buffer in place.
//!
//! A view is told to whoever submits before it waits, so nothing that conflicts is submitted from
//! then on; then it waits for what was. So it needs no place on a timeline, and lives as long as it
//! likes. What a view inside a function may show is told in [`aside`](crate::aside).
#![allow(
    unsafe_code,
    reason = "makes slices of the memory behind buffers; each block states its reason"
)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, copy_nonoverlapping};
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;
use clika_executor::Position;

use crate::aside::{self, Aside, current_function};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::hazard::{self, Access, Positions, Viewer};
use crate::pool::Block;
use crate::runtime::runtime;
use crate::storage::{Missing, Storage};
use crate::wait;

/// The host reads a buffer in place: a `&[T]`. Made by [`Buffer::view`].
pub struct View<T>(RawView, PhantomData<fn() -> T>);

/// The host reads and writes a buffer in place: a `&mut [T]`. Made by [`Buffer::view_mut`]. It goes where
/// a `T` may go.
pub struct ViewMut<T>(RawView, PhantomData<T>);

impl Buffer {
    /// Lets the host read the buffer in place, as elements of type `T`, once everything submitted so
    /// far that writes to it has run.
    ///
    /// While the view lives, submitting what writes to the buffer is an invalid argument.
    ///
    /// # Errors
    /// Invalid argument if nothing was written to it, if it is being viewed for writing, or if its size
    /// is no multiple of that of `T`; the failure of what should have written it; a deadlock inside
    /// work that this would wait for.
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Buffer, Device, Stream};
    ///
    /// let stream = Stream::create(Device::cpu())?;
    /// let buffer = Buffer::from_slice(Device::cpu(), &[1_u8, 2, 3])?;
    /// let view = buffer.view::<u8>()?;
    /// assert_eq!(*view, [1, 2, 3]);
    /// assert!(stream.fill(&buffer, 0..3, 0_u8).unwrap_err().is_invalid_argument());
    /// drop(view);
    /// stream.fill(&buffer, 0..3, 0_u8)?;
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    pub fn view<T: Pod + Sync>(&self) -> Result<View<T>, Error> {
        self.check_elements::<T>()?;
        Ok(View(RawView::new(self, false)?, PhantomData))
    }

    /// Lets the host read and write the buffer in place, once everything submitted so far that uses it
    /// has run. Bytes that nothing wrote before are unspecified.
    ///
    /// While the view lives, submitting what uses the buffer is an invalid argument.
    ///
    /// # Errors
    /// As for [`view`](Self::view); invalid argument if it is being viewed already.
    pub fn view_mut<T: Pod + Send>(&self) -> Result<ViewMut<T>, Error> {
        self.check_elements::<T>()?;
        Ok(ViewMut(RawView::new(self, true)?, PhantomData))
    }

    pub(crate) fn check_elements<T>(&self) -> Result<(), Error> {
        const { assert!(align_of::<T>() <= crate::pool::ALIGNMENT) };
        self.storage().check_elements(size_of::<T>().max(1))
    }
}

impl<T: Pod> Deref for View<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: nobody writes while a view lives.
        unsafe { slice::from_raw_parts(self.0.start.cast().as_ptr(), self.0.count::<T>()) }
    }
}

impl<T: Pod> Deref for ViewMut<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as below, and this borrows the view.
        unsafe { slice::from_raw_parts(self.0.start.cast().as_ptr(), self.0.count::<T>()) }
    }
}

impl<T: Pod> DerefMut for ViewMut<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: nobody else is at the bytes while a writable view lives, and
        // this borrows the view for itself.
        unsafe { slice::from_raw_parts_mut(self.0.start.cast().as_ptr(), self.0.count::<T>()) }
    }
}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} bytes)", self.0.storage.nbytes())
    }
}

impl<T> fmt::Debug for ViewMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut({} bytes)", self.0.storage.nbytes())
    }
}

/// A view that was asked for, and what it waits for. Dropping it takes the wish back.
pub struct ViewRequest {
    storage: Arc<Storage>,
    writable: bool,
    viewer: Viewer,
    /// What it can only show a copy of, and where that goes.
    copy: Option<([Aside; 1], Block)>,
    positions: Positions,
    /// Whether it has become a view.
    done: bool,
}

impl ViewRequest {
    /// Asks for a view: nothing that conflicts is submitted from here on. Inside the function that has
    /// the buffer as an argument it is direct: there may be any number, beside each other.
    ///
    /// # Errors
    /// As for [`Buffer::view`], but for failures and deadlocks.
    pub fn new(buffer: &Buffer, writable: bool) -> Result<Self, Error> {
        if buffer.storage().is_held_here() {
            return Self::ask(buffer, writable, Viewer::Argument);
        }
        Self::of_stranger(buffer, writable)
    }

    /// Not as the function that has the buffer as an argument.
    fn of_stranger(buffer: &Buffer, writable: bool) -> Result<Self, Error> {
        let viewer = current_function().map_or(Viewer::Host, Viewer::Aside);
        Self::ask(buffer, writable, viewer)
    }

    fn ask(buffer: &Buffer, writable: bool, viewer: Viewer) -> Result<Self, Error> {
        let storage = buffer.storage().clone();
        storage.admit()?;
        let begun = hazard::begin_view(&storage, writable, viewer)?;
        let mut request = Self {
            storage,
            writable,
            viewer,
            copy: None,
            positions: begun.ahead,
            done: false,
        };
        if let (Viewer::Aside(function), true) = (viewer, begun.copies) {
            let aside = Aside::new(buffer.claim(Access::Read), function)?;
            let block = runtime()?.pool.allocate(buffer.nbytes().max(1))?;
            request.copy = Some(([aside], block));
        }
        Ok(request)
    }

    /// What is to be reached before the next attempt.
    #[must_use]
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// The view, unless somebody is in the way, who is to be waited for first.
    ///
    /// # Errors
    /// Why there are no bytes to look at.
    pub fn attempt(&mut self) -> Result<Option<RawView>, Missing> {
        let start = match &mut self.copy {
            None => {
                let direct = matches!(self.viewer, Viewer::Argument);
                self.storage.begin_view(self.writable, direct)?
            }
            Some((aside, block)) => {
                let (target, nbytes) = (block.start(), self.storage.nbytes());
                let copied = aside::attempt(aside, |starts| {
                    // SAFETY: nobody writes to the bytes meanwhile; the block is new, and as long.
                    unsafe { copy_nonoverlapping(starts[0].as_ptr(), target.as_ptr(), nbytes) };
                })?;
                if copied.is_none() {
                    self.positions = aside[0].positions().into();
                    return Ok(None);
                }
                target
            }
        };
        self.done = true;
        Ok(Some(RawView {
            storage: self.storage.clone(),
            start,
            writable: self.writable,
            copy: self.copy.take().map(|(_, block)| block),
        }))
    }
}

impl Drop for ViewRequest {
    fn drop(&mut self) {
        if !self.done && !self.storage.is_inherited() {
            self.storage.order.lock().end_view(self.writable);
        }
    }
}

impl fmt::Debug for ViewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ViewRequest").field(&self.positions).finish()
    }
}

/// A view by its address. The bytes stay where they are, and nothing that conflicts runs, until it is
/// dropped.
pub struct RawView {
    storage: Arc<Storage>,
    start: NonNull<u8>,
    writable: bool,
    /// If the bytes are a copy: whoever runs knows nothing of the view then.
    copy: Option<Block>,
}

// SAFETY: it gives out an address and no access, and belongs to no thread.
unsafe impl Send for RawView {}
// SAFETY: as above.
unsafe impl Sync for RawView {}

impl RawView {
    /// A view that slices are made of, so never a direct one: no two of those are at the same bytes.
    fn new(buffer: &Buffer, writable: bool) -> Result<Self, Error> {
        let mut request = ViewRequest::of_stranger(buffer, writable)?;
        loop {
            for position in request.positions() {
                wait::reach(position, None)?;
            }
            if let Some(view) = request.attempt().map_err(Missing::into_error)? {
                return Ok(view);
            }
        }
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.storage.nbytes()
    }

    fn count<T>(&self) -> usize {
        self.nbytes() / size_of::<T>().max(1)
    }
}

impl fmt::Debug for RawView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawView({} bytes)", self.nbytes())
    }
}

impl Drop for RawView {
    fn drop(&mut self) {
        if self.storage.is_inherited() {
            return;
        }
        if self.copy.is_none() {
            self.storage.end_view(self.writable);
        }
        self.storage.order.lock().end_view(self.writable);
    }
}

impl Missing {
    /// The same as an error.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(failure) => wait::failed(&failure),
            Self::Error(error) => error,
        }
    }
}
