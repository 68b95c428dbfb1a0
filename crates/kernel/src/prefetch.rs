//! Asking the processor for memory before it is needed.
//!
//! With a thousand connections each one's slot and task have left the cache by the time its next message comes. A turn
//! knows early whom it will touch, and the misses then overlap instead of adding up; the queues' entries likewise.
#![allow(unsafe_code)]

/// Bytes a cache line.
const LINE: usize = 64;

/// Asks for the lines of `bytes` bytes at `address`. A hint: nothing is read, and a stale address is harmless.
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
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn hint(_address: *const u8) {}
