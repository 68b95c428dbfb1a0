//! Prefetching memory before it is needed.
//!
//! With a thousand connections, a connection's slot and task have left the cache by the time its
//! next message arrives. A turn knows early which slots, tasks and queue entries it will use, so
//! prefetching lets their cache misses overlap.
#![allow(unsafe_code)]

/// Bytes per cache line.
const CACHE_LINE_BYTES: usize = 64;

/// Prefetches `bytes` bytes at `address`. This is only a hint: it reads nothing, and any address is
/// harmless.
#[inline(always)]
pub fn prefetch<T>(address: *const T, bytes: usize) {
    for offset in (0..bytes).step_by(CACHE_LINE_BYTES) {
        prefetch_line(address.cast::<u8>().wrapping_add(offset));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing, and does not fault on any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn prefetch_line(_address: *const u8) {}
