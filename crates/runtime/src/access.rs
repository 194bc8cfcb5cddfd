//! What an operation reads and writes, and the slices that it gets for that.
//!
//! A slice lives for one operation: the function is good for any lifetime, so it can keep nothing of
//! it. While the operation runs, no other is at those bytes unless both only read: the order of
//! submission sees to that (see [`hazard`](crate::hazard)), and the storage checks it.
#![allow(
    unsafe_code,
    reason = "makes slices of the memory behind buffers; each block states its reason"
)]

use std::any::type_name_of_val;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::ptr::NonNull;
use std::slice;

use bytemuck::Pod;

use crate::aside::{self, number_function};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::runtime::runtime;
use crate::storage::{Claim, Held};
use crate::stream::Stream;
use crate::task::{Lane, OnHost, OnWorker, Place, Submit};

/// An operation reads a buffer: it gets a `&[T]`. Made by [`Buffer::read`](crate::Buffer::read).
#[derive(Clone)]
pub struct Read<T>(Claim, PhantomData<fn() -> T>);

/// An operation overwrites a buffer: it gets a `&mut [T]`. Made by
/// [`Buffer::write`](crate::Buffer::write).
#[derive(Clone)]
pub struct Write<T>(Claim, PhantomData<fn() -> T>);

/// An operation changes a buffer: it gets a `&mut [T]`. Made by
/// [`Buffer::update`](crate::Buffer::update).
#[derive(Clone)]
pub struct Update<T>(Claim, PhantomData<fn() -> T>);

/// What one operation does to one buffer.
pub trait Access: sealed::Access {}

/// What one operation does to all the buffers that it touches: one access, a tuple of up to eight, an
/// array or a vector of accesses of the same kind.
pub trait Accesses: sealed::Accesses {}

mod sealed {
    use std::ops::Range;
    use std::ptr::NonNull;

    use crate::error::Error;
    use crate::storage::{Claim, Held};

    pub trait Access: Send + Sync + 'static {
        type Slice<'a>;

        fn claim(&self) -> &Claim;

        fn size() -> usize;

        /// Whether a kernel gets the part for its range, and not all.
        const PARTED: bool;

        /// # Safety
        /// `start` is where the bytes of a buffer are, which holds at least `range.end` elements. For
        /// as long as `'a`, those of `range` are this operation's, for what it said that it does to
        /// them.
        unsafe fn slice<'a>(start: NonNull<u8>, range: Range<usize>) -> Self::Slice<'a>;

        fn elements(&self) -> usize {
            self.claim().storage.nbytes() / Self::size()
        }
    }

    pub trait Accesses: Send + Sync + 'static {
        type Slices<'a>;
        type Claims: crate::task::Claims;

        fn claims(&self) -> Self::Claims;

        /// # Errors
        /// If a buffer does not hold a whole number of elements.
        fn check(&self) -> Result<(), Error>;

        /// # Errors
        /// If a buffer to be written does not hold the same number of elements for each of `count`
        /// indices.
        fn check_parts(&self, count: usize) -> Result<(), Error>;

        /// # Safety
        /// `held` is an operation at the claims of `self`, and lasts for `'a`. This is called once for
        /// it, or with disjoint ranges of `0..count` each time.
        unsafe fn slices<'a>(
            &self,
            held: &'a Held<'_>,
            part: Option<(&Range<usize>, usize)>,
        ) -> Self::Slices<'a> {
            let mut next = 0;
            // SAFETY: promised by the caller.
            unsafe { self.slices_from(held, &mut next, part) }
        }

        /// As `slices`, from the claim numbered `next` on.
        ///
        /// # Safety
        /// As for `slices`.
        unsafe fn slices_from<'a>(
            &self,
            held: &'a Held<'_>,
            next: &mut usize,
            part: Option<(&Range<usize>, usize)>,
        ) -> Self::Slices<'a>;
    }
}

macro_rules! access {
    ($name:ident, $bound:ident, $slice:ty, $parted:expr, $make:expr) => {
        impl<T> $name<T> {
            pub(crate) fn new(claim: Claim) -> Self {
                Self(claim, PhantomData)
            }
        }

        impl<T: Pod + $bound> Access for $name<T> {}

        impl<T: Pod + $bound> sealed::Access for $name<T> {
            type Slice<'a> = $slice;

            const PARTED: bool = $parted;

            fn claim(&self) -> &Claim {
                &self.0
            }

            fn size() -> usize {
                size_of::<T>().max(1)
            }

            unsafe fn slice<'a>(start: NonNull<u8>, range: Range<usize>) -> Self::Slice<'a> {
                const { assert!(align_of::<T>() <= crate::pool::ALIGNMENT) };
                // SAFETY: promised by the caller. Memory of a pool is aligned for every such type and
                // initialised, and every pattern of bytes is a value of a `Pod` type.
                unsafe { $make(start.cast::<T>().add(range.start).as_ptr(), range.len()) }
            }
        }
    };
}

access!(Read, Sync, &'a [T], false, slice::from_raw_parts);
access!(Write, Send, &'a mut [T], true, slice::from_raw_parts_mut);
access!(Update, Send, &'a mut [T], true, slice::from_raw_parts_mut);

fn check_size<A: sealed::Access>(access: &A) -> Result<(), Error> {
    access.claim().storage.check_elements(A::size())
}

fn check_part<A: sealed::Access>(access: &A, count: usize) -> Result<(), Error> {
    if !A::PARTED || count == 0 || access.elements().is_multiple_of(count) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "{} elements cannot be shared out evenly over {count} indices: make the buffer a multiple of \
         the range",
        access.elements()
    )))
}

/// # Safety
/// As for `Accesses::slices`, for the claim numbered `next`.
unsafe fn slice_of<'a, A: sealed::Access>(
    access: &A,
    held: &'a Held<'_>,
    next: &mut usize,
    part: Option<(&Range<usize>, usize)>,
) -> A::Slice<'a> {
    let (start, elements) = (held.start(*next), access.elements());
    *next += 1;
    let range = match part {
        Some((range, count)) if A::PARTED => {
            let each = elements / count.max(1);
            range.start * each..range.end * each
        }
        _ => 0..elements,
    };
    // SAFETY: promised by the caller: these elements are the operation's, and of a part nobody else's.
    // The range lies within all of them, since the part lies within the count.
    unsafe { A::slice(start, range) }
}

impl<A: Access> Accesses for A {}

impl<A: Access> sealed::Accesses for A {
    type Slices<'a> = A::Slice<'a>;
    type Claims = [Claim; 1];

    fn claims(&self) -> Self::Claims {
        [self.claim().clone()]
    }

    fn check(&self) -> Result<(), Error> {
        check_size(self)
    }

    fn check_parts(&self, count: usize) -> Result<(), Error> {
        check_part(self, count)
    }

    unsafe fn slices_from<'a>(
        &self,
        held: &'a Held<'_>,
        next: &mut usize,
        part: Option<(&Range<usize>, usize)>,
    ) -> Self::Slices<'a> {
        // SAFETY: promised by the caller.
        unsafe { slice_of(self, held, next, part) }
    }
}

macro_rules! many {
    ($kind:ty, $slices:ty $(, $count:ident)?) => {
        impl<A: Access $(, const $count: usize)?> Accesses for $kind {}

        impl<A: Access $(, const $count: usize)?> sealed::Accesses for $kind {
            type Slices<'a> = $slices;
            type Claims = Vec<Claim>;

            fn claims(&self) -> Self::Claims {
                self.iter().map(|access| access.claim().clone()).collect()
            }

            fn check(&self) -> Result<(), Error> {
                self.iter().try_for_each(check_size)
            }

            fn check_parts(&self, count: usize) -> Result<(), Error> {
                self.iter().try_for_each(|access| check_part(access, count))
            }

            unsafe fn slices_from<'a>(
                &self,
                held: &'a Held<'_>,
                next: &mut usize,
                part: Option<(&Range<usize>, usize)>,
            ) -> Self::Slices<'a> {
                // SAFETY: promised by the caller.
                self.each_ref_of(|access| unsafe { slice_of(access, held, next, part) })
            }
        }
    };
}

/// Calls a function for each element, in order.
trait EachRef<A> {
    type Mapped<R>;

    fn each_ref_of<R>(&self, f: impl FnMut(&A) -> R) -> Self::Mapped<R>;
}

impl<A> EachRef<A> for Vec<A> {
    type Mapped<R> = Vec<R>;

    fn each_ref_of<R>(&self, f: impl FnMut(&A) -> R) -> Vec<R> {
        self.iter().map(f).collect()
    }
}

impl<A, const N: usize> EachRef<A> for [A; N] {
    type Mapped<R> = [R; N];

    fn each_ref_of<R>(&self, f: impl FnMut(&A) -> R) -> [R; N] {
        self.each_ref().map(f)
    }
}

many!(Vec<A>, Vec<A::Slice<'a>>);
many!([A; N], [A::Slice<'a>; N], N);

macro_rules! tuple {
    ($count:literal: $($name:ident $place:tt),+) => {
        impl<$($name: Access),+> Accesses for ($($name,)+) {}

        impl<$($name: Access),+> sealed::Accesses for ($($name,)+) {
            type Slices<'a> = ($($name::Slice<'a>,)+);
            type Claims = [Claim; $count];

            fn claims(&self) -> Self::Claims {
                [$(self.$place.claim().clone()),+]
            }

            fn check(&self) -> Result<(), Error> {
                $(check_size(&self.$place)?;)+
                Ok(())
            }

            fn check_parts(&self, count: usize) -> Result<(), Error> {
                $(check_part(&self.$place, count)?;)+
                Ok(())
            }

            unsafe fn slices_from<'a>(
                &self,
                held: &'a Held<'_>,
                next: &mut usize,
                part: Option<(&Range<usize>, usize)>,
            ) -> Self::Slices<'a> {
                // SAFETY: promised by the caller.
                unsafe { ($(slice_of(&self.$place, held, next, part),)+) }
            }
        }
    };
}

tuple!(1: A 0);
tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);
tuple!(5: A 0, B 1, C 2, D 3, E 4);
tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

impl Stream {
    /// Submits a function that computes on the contents of buffers.
    ///
    /// It gets a slice for each access, and runs after everything submitted before, on whatever
    /// stream, that conflicts with that.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit); invalid argument for a buffer of another device, one that is
    /// read and that nothing writes, one that is given twice and written, one that is being viewed, and
    /// for a size that is no multiple of the element's.
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Buffer, Device, Stream};
    ///
    /// let stream = Stream::create(Device::cpu())?;
    /// let words = Buffer::from_slice(Device::cpu(), &[3_u32, 1, 2])?;
    /// stream.run(words.update::<u32>(), |words| words.sort())?;
    /// assert_eq!(words.to_vec::<u32>()?, [1, 2, 3]);
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    #[track_caller]
    pub fn run<A: Accesses, R: Outcome>(
        &self,
        accesses: A,
        work: impl FnOnce(A::Slices<'_>) -> R + Send + 'static,
    ) -> Result<(), Error> {
        let name = type_name_of_val(&work);
        self.run_on(OnWorker, name, Location::caller(), accesses, work)
    }

    /// As [`run`](Self::run), for a function that may block: it runs on the host lane.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    #[track_caller]
    pub fn run_host<A: Accesses, R: Outcome>(
        &self,
        accesses: A,
        work: impl FnOnce(A::Slices<'_>) -> R + Send + 'static,
    ) -> Result<(), Error> {
        let (name, function) = (type_name_of_val(&work), number_function());
        let work = move |slices: A::Slices<'_>| aside::inside(function, || work(slices));
        self.run_on(OnHost, name, Location::caller(), accesses, work)
    }

    fn run_on<A: Accesses, R: Outcome>(
        &self,
        lane: impl Lane,
        name: &'static str,
        site: &'static Location<'static>,
        accesses: A,
        work: impl FnOnce(A::Slices<'_>) -> R + Send + 'static,
    ) -> Result<(), Error> {
        accesses.check()?;
        let submit = self.submit_at(accesses.claims(), site, name);
        submit.run(lane, move |held| {
            // SAFETY: `held` is at these claims, and this is the only call.
            work(unsafe { accesses.slices(held, None) }).into_result()
        })
    }

    /// Submits a kernel over `0..count`, whose ranges run on all workers that are idle.
    ///
    /// The kernel gets a range of at most `grain` indices, and slices: of what it reads, all; of what
    /// it writes or updates, the part for its range, the same number of elements for each index.
    ///
    /// # Errors
    /// As for [`run`](Self::run); invalid argument if what is written cannot be shared out evenly.
    ///
    /// # Examples
    ///
    /// ```
    /// use clika_runtime::{Buffer, Device, Stream};
    ///
    /// let stream = Stream::create(Device::cpu())?;
    /// let x = Buffer::from_slice(Device::cpu(), &vec![2_f32; 10_000])?;
    /// let y = Buffer::new(Device::cpu(), x.nbytes())?;
    /// stream.parallel_for(10_000, 1024, (x.read::<f32>(), y.write::<f32>()), |range, (x, y)| {
    ///     for (y, x) in y.iter_mut().zip(&x[range]) {
    ///         *y = x.sqrt();
    ///     }
    /// })?;
    /// assert_eq!(y.to_vec::<f32>()?, vec![2_f32.sqrt(); 10_000]);
    /// # Ok::<(), clika_runtime::Error>(())
    /// ```
    #[track_caller]
    pub fn parallel_for<A: Accesses>(
        &self,
        count: usize,
        grain: usize,
        accesses: A,
        kernel: impl Fn(Range<usize>, A::Slices<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        accesses.check()?;
        accesses.check_parts(count)?;
        let executor = &runtime()?.executor;
        let name = type_name_of_val(&kernel);
        let submit = self.submit_at(accesses.claims(), Location::caller(), name);
        submit.run(OnWorker, move |held| {
            executor.parallel_for(count, grain, |range| {
                // SAFETY: `held` is at these claims until `parallel_for` has returned, and no two
                // calls have an index in common.
                let slices = unsafe { accesses.slices(held, Some((&range, count))) };
                kernel(range.clone(), slices);
            });
            Ok(())
        })
    }

    pub(crate) fn submit_at<C, S: Place>(
        &self,
        claims: C,
        site: S,
        name: &'static str,
    ) -> Submit<'_, C, S> {
        Submit {
            stream: self,
            claims,
            site,
            name,
        }
    }
}
