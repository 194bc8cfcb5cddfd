//! Lets ThreadSanitizer see the order in which the references to an `Arc` go.
//!
//! Each that goes counts down with `Release`, and the last one then sees all earlier uses by a fence,
//! which the sanitizer does not model: to it, freeing what an `Arc` holds races with every use. Here
//! counting down acquires as well, which says the same without a fence. The linker puts this function
//! in place of the sanitizer's own (`--wrap`).
#![no_std]

use core::ffi::c_int;

const RELEASE: c_int = 3;
const ACQUIRE_RELEASE: c_int = 4;

unsafe extern "C" {
    fn __real___tsan_atomic64_fetch_sub(counter: *mut u64, by: u64, order: c_int) -> u64;
}

/// # Safety
/// As for the sanitizer's function, which only instrumented code calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap___tsan_atomic64_fetch_sub(
    counter: *mut u64,
    by: u64,
    order: c_int,
) -> u64 {
    let order = if order == RELEASE {
        ACQUIRE_RELEASE
    } else {
        order
    };
    // SAFETY: the arguments are the caller's, but for an order that is stronger.
    unsafe { __real___tsan_atomic64_fetch_sub(counter, by, order) }
}
