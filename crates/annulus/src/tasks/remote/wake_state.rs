//! Decides whether a wake must end the loop's sleep with a system call. The whole protocol:
//!
//! The state is one word that only changes by atomic exchanges, so a waker and a loop that is about
//! to sleep are ordered. If the loop parks first, the waker finds it parked and must end its sleep.
//! If the waker is first, the loop finds itself woken and does not sleep. No wake is lost, and
//! waking a loop that is awake costs no system call.
//!
//! The atomics are the parent module's: `tests/remote_wake.rs` replaces them with loom's, which
//! tries every order of the threads' steps.

use super::atomic::{AtomicU8, Ordering};

/// The loop is awake, and has seen all wakes.
const AWAKE: u8 = 0;
/// The loop sleeps, or is about to sleep.
const PARKED: u8 = 1;
/// There is a wake that the loop has not seen. If the loop was parked, the waker that made this
/// change ends its sleep.
const WOKEN: u8 = 2;

/// `AWAKE`, `PARKED` or `WOKEN`.
pub(crate) struct WakeState(AtomicU8);

impl WakeState {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Records a wake. Returns true if the loop sleeps. The caller must then end its sleep; no
    /// other waker will.
    pub(crate) fn wake(&self) -> bool {
        // Release: the loop must see everything that this thread did before the wake.
        self.0.swap(WOKEN, Ordering::Release) == PARKED
    }

    /// Returns true if there has been a wake since the last call.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Acquires what all wakers have released: each exchange passes on what the previous one
        // released.
        self.0.load(Ordering::Relaxed) == WOKEN && self.0.swap(AWAKE, Ordering::Acquire) == WOKEN
    }

    /// Records that the loop is about to sleep. Returns false if there has been a wake, which the
    /// loop must handle first.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        // A sleep that failed leaves the loop parked, so it may park again.
        self.change(AWAKE, PARKED) != Err(WOKEN)
    }

    /// Records that the loop is awake again. A wake that ended its sleep remains visible.
    #[inline]
    pub(crate) fn unpark(&self) {
        _ = self.change(PARKED, AWAKE);
    }

    /// Changes the state without ordering other memory. The error is the current state.
    #[inline]
    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }
}
