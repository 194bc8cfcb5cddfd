//! Buffers: device memory that streams share.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::access::{Read, Update, Write};
use crate::aside::current_function;
use crate::device::Device;
use crate::error::Error;
use crate::hazard::Access;
use crate::pool::MemoryStats;
use crate::runtime::runtime;
use crate::storage::{Claim, Storage};
use crate::stream::Stream;

/// A stretch of device memory that operations read and write.
///
/// A buffer has a size and no place yet: the first operation that writes to it allocates it, when it
/// runs, and its last user gives the memory back to the device's pool. So a chain of temporaries that
/// is submitted far ahead holds few blocks at any time. A clone is another handle of the same buffer.
///
/// # Order without asking
/// Operations say what they read and write. Those that conflict, on whatever streams, run in the order
/// in which they were submitted; those that only read a buffer overlap. No event is needed for what
/// data shows.
///
/// Inside a function of the host lane ([`Stream::submit_host`] and the like), access to buffers that it
/// was not given waits for what was submitted before that function, and for nothing behind it.
///
/// # Failures
/// What a failed or skipped operation should have written has failed too, and stays so when the
/// failure is acknowledged: whoever reads it fails with the same origin. Overwriting all of it mends
/// it.
///
/// # Initialised
/// Reading a buffer that no submitted operation writes is an invalid argument. Bytes that a partial
/// write leaves are unspecified, though initialised.
///
/// # Examples
///
/// ```
/// use clika_runtime::{Buffer, Device, Stream};
///
/// let (load, sum) = (Stream::create(Device::cpu())?, Stream::create(Device::cpu())?);
/// let (numbers, squares) = (Buffer::new(Device::cpu(), 4 * 8)?, Buffer::new(Device::cpu(), 4 * 8)?);
/// load.run(numbers.write::<f64>(), |numbers| numbers.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]))?;
/// // Another stream, and no event: the data shows the order.
/// sum.run((numbers.read::<f64>(), squares.write::<f64>()), |(numbers, squares)| {
///     for (square, number) in squares.iter_mut().zip(numbers) {
///         *square = number * number;
///     }
/// })?;
/// assert_eq!(squares.to_vec::<f64>()?, [1.0, 4.0, 9.0, 16.0]);
/// # Ok::<(), clika_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Buffer(Arc<Storage>);

impl Buffer {
    /// A buffer of `nbytes` bytes that nothing was written to. Costs no memory yet.
    ///
    /// # Errors
    /// As for [`Stream::create`]; invalid argument if no memory could ever be that large.
    pub fn new(device: Device, nbytes: usize) -> Result<Self, Error> {
        if nbytes > isize::MAX as usize {
            return Err(Error::invalid_argument(format!(
                "a buffer of {nbytes} bytes cannot be: the most is {}",
                isize::MAX
            )));
        }
        let pool = runtime()?.pool.clone();
        Ok(Self(Storage::new(device, nbytes, pool)))
    }

    /// A buffer that holds a copy of `data`, made now.
    ///
    /// # Errors
    /// As for [`new`](Self::new); out of memory if there is none for it.
    pub fn from_slice<T: Pod>(device: Device, data: &[T]) -> Result<Self, Error> {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let buffer = Self::new(device, bytes.len())?;
        buffer.0.fill_with(bytes)?;
        Ok(buffer)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// The device that its memory is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// For an operation that reads it, as elements of type `T`.
    #[must_use]
    pub fn read<T: Pod + Sync>(&self) -> Read<T> {
        Read::new(self.claim(Access::Read))
    }

    /// For an operation that overwrites all of it, as elements of type `T`. What the operation leaves
    /// out is unspecified.
    #[must_use]
    pub fn write<T: Pod + Send>(&self) -> Write<T> {
        Write::new(self.claim(Access::Overwrite))
    }

    /// For an operation that reads it and writes to it, as elements of type `T`.
    #[must_use]
    pub fn update<T: Pod + Send>(&self) -> Update<T> {
        Update::new(self.claim(Access::Update))
    }

    /// What it holds, once everything submitted so far that writes to it has run. The copy is made on
    /// the default stream; inside a function of the host lane on no stream, of what was submitted before
    /// that function.
    ///
    /// # Errors
    /// As for [`Stream::copy_out`]; invalid argument if the size is no multiple of that of `T`.
    #[track_caller]
    pub fn to_vec<T: Pod + Send>(&self) -> Result<Vec<T>, Error> {
        if let Some(function) = current_function() {
            self.check_elements::<T>()?;
            return self.to_vec_inside(function);
        }
        Stream::default_stream(self.device())?
            .copy_out(self, 0..self.nbytes())?
            .wait()
    }

    /// A number that tells it apart from every other buffer there is.
    #[must_use]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn claim(&self, access: Access) -> Claim {
        Claim {
            storage: self.0.clone(),
            access,
        }
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.0
    }
}

impl PartialEq for Buffer {
    /// Whether both are handles of the same buffer.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes on {})", self.nbytes(), self.device())
    }
}

impl Device {
    /// What the pool of its memory holds now.
    ///
    /// # Errors
    /// As for [`Stream::create`].
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Buffer, Device};
    ///
    /// let buffer = Buffer::from_slice(Device::cpu(), &[0_u8; 1 << 20])?;
    /// assert_eq!(Device::cpu().memory_stats()?.live_bytes, 1 << 20);
    /// drop(buffer);
    /// assert_eq!(Device::cpu().memory_stats()?.cached_bytes, 1 << 20);
    /// Device::cpu().release_memory()?;
    /// assert_eq!(Device::cpu().memory_stats()?.cached_bytes, 0);
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    pub fn memory_stats(&self) -> Result<MemoryStats, Error> {
        Ok(runtime()?.pool.stats())
    }

    /// Gives the memory that its pool keeps for reuse back to the system.
    ///
    /// # Errors
    /// As for [`Stream::create`].
    pub fn release_memory(&self) -> Result<(), Error> {
        runtime()?.pool.release();
        Ok(())
    }
}
