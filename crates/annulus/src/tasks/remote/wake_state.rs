//! When a wake has to end the loop's sleep by a system call: the whole protocol.
//!
//! It is one word, changed by exchanges only, so of a waker and a loop that is about to sleep one comes first. If the loop
//! parks first, the waker finds it parked and must end its sleep. If the waker comes first, the loop finds itself woken and
//! does not sleep. No wake is lost, and waking a loop that is awake costs no system call.
//!
//! The atomics are the parent's: `tests/remote_wake.rs` puts loom's in their place, and tries every order.

use super::atomic::{AtomicU8, Ordering};

/// The loop is awake, and has seen all wakes.
const AWAKE: u8 = 0;
/// The loop sleeps, or is about to.
const PARKED: u8 = 1;
/// There is a wake that the loop has not seen. If it was parked, the waker that changed this ends its sleep.
const WOKEN: u8 = 2;

/// Set by many threads, read by the loop.
pub(crate) struct WakeState(AtomicU8);

impl WakeState {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Wakes. True if the loop sleeps: then the caller must end its sleep, and no other waker will.
    pub(crate) fn wake(&self) -> bool {
        // Releases what the loop is to find.
        self.0.swap(WOKEN, Ordering::Release) == PARKED
    }

    /// Whether there was a wake since the last call.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Acquires what all wakers have released: each exchange hands on what the one before it did.
        self.0.load(Ordering::Relaxed) == WOKEN && self.0.swap(AWAKE, Ordering::Acquire) == WOKEN
    }

    /// The loop is about to sleep. False if there was a wake, which it has to see first.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        // A sleep that failed leaves the loop parked: it may park again.
        self.change(AWAKE, PARKED) != Err(WOKEN)
    }

    /// The loop is awake again. A wake that ended its sleep stays to be seen.
    #[inline]
    pub(crate) fn unpark(&self) {
        _ = self.change(PARKED, AWAKE);
    }

    /// Orders no other memory. The error is the state that it was in.
    #[inline]
    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }
}
