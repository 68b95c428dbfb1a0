//! How a loop that sleeps is woken, and one that is awake is not: the whole protocol.
//!
//! It is one word, changed by exchanges only, so that of a waker and a loop that is about to sleep one comes first. Comes
//! the loop first, the waker finds it parked and wakes it; comes the waker first, the loop finds the bell rung and stays
//! up. No wake is lost, and a loop that is awake costs its wakers no system call.
//!
//! The atomics are the parent's: `tests/remote_wake.rs` puts loom's in their place, and tries every order.

use super::atomic::{AtomicU8, Ordering};

/// The loop is awake, and nobody wants it.
const AWAKE: u8 = 0;
/// The loop sleeps, or is about to.
const PARKED: u8 = 1;
/// The loop is to look around. Whoever rang while it was parked wakes it.
const RUNG: u8 = 2;

/// Rung by many, heard by one.
pub(crate) struct Bell(AtomicU8);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Rings. True where the loop sleeps: then the caller must wake it, and nobody else will.
    pub(crate) fn ring(&self) -> bool {
        // Releases what the loop is to find.
        self.0.swap(RUNG, Ordering::Release) == PARKED
    }

    /// Whether it was rung since the last call.
    #[inline]
    pub(crate) fn heard(&self) -> bool {
        // Acquires what all who rang have released: each exchange hands on what the one before it did.
        self.0.load(Ordering::Relaxed) == RUNG && self.0.swap(AWAKE, Ordering::Acquire) == RUNG
    }

    /// The loop is about to sleep. False where the bell was rung: then it must look around first.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        // A sleep that failed leaves the loop parked: it may park again.
        self.change(AWAKE, PARKED) != Err(RUNG)
    }

    /// The loop is awake again, whatever woke it. If it was the bell, that stays rung.
    #[inline]
    pub(crate) fn unpark(&self) {
        _ = self.change(PARKED, AWAKE);
    }

    /// Says nothing about any other memory. Where it was something else, answers what.
    #[inline]
    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }
}
