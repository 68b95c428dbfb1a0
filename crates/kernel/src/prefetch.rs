//! Prefetching memory before it is needed.
//!
//! With a thousand connections, the slot and the task of each have left the cache when its next message comes. A turn knows early
//! which it will use, so that the cache misses can overlap; so it does for the entries of the queues.
#![allow(unsafe_code)]

/// Bytes a cache line.
const LINE: usize = 64;

/// Prefetches `bytes` bytes at `address`. A hint: nothing is read, and any address is harmless.
#[inline(always)]
pub fn prefetch<T>(address: *const T, bytes: usize) {
    for offset in (0..bytes).step_by(LINE) {
        hint(address.cast::<u8>().wrapping_add(offset));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn hint(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing, and does not fault on any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn hint(_address: *const u8) {}
