//! The count of references to a task, for which its owner needs no locked operation. The whole protocol:
//!
//! The count that all threads share starts with a reserve far above the number of references that can exist. The owner draws its
//! references from that reserve, and notes in a plain cell how many; other threads add and subtract one by one. While the
//! reserve is in the count, it cannot reach zero, and is not compared with it. When the task is done, the owner returns what it has
//! not drawn. From then on the count is the number of references, of all threads, and the release that takes it to zero is the last.
//!
//! `tests/task_refs.rs` replaces the atomics of the parent module by loom's, and tries every order.

use super::atomic::{AtomicI64, Cell, Ordering, fence};

/// More references than can exist, and as far from overflow.
const RESERVE: i64 = 1 << 62;

/// A count of references. The cell makes it not `Sync`. Code that shares it all the same must pass `owner` as true on the owner's
/// thread only.
pub(crate) struct Refs {
    shared: AtomicI64,
    /// The owner's: how many references are drawn, below zero if the owner has dropped references that others made; `None` once the
    /// reserve was returned. All owner's data is in a cell, since the memory may be freed while `self` is borrowed.
    drawn: Cell<Option<i64>>,
}

impl Refs {
    /// A count with this many references, drawn by the owner.
    pub(crate) fn new(drawn: i64) -> Self {
        Self { shared: AtomicI64::new(RESERVE), drawn: Cell::new(Some(drawn)) }
    }

    /// Adds a reference, copied from an existing one.
    #[inline]
    pub(crate) fn add(&self, owner: bool) {
        if owner && let Some(drawn) = self.drawn.get() {
            return self.drawn.set(Some(drawn + 1));
        }
        // Relaxed as in `Arc`: the existing reference keeps the task alive.
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a reference. True if it was the last: then all that other threads did with the task is visible here.
    #[inline]
    pub(crate) fn release(&self, owner: bool) -> bool {
        if owner && let Some(drawn) = self.drawn.get() {
            self.drawn.set(Some(drawn - 1));
            return false;
        }
        // Releases what was done with this reference; the fence acquires what was done with the earlier ones.
        let last = self.shared.fetch_sub(1, Ordering::Release) == 1;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }

    /// Whether the reserve was returned. On another thread than the owner's that may be seen late.
    pub(crate) fn is_returned(&self) -> bool {
        self.shared.load(Ordering::Relaxed) < RESERVE / 2
    }

    /// Returns the reserve. Only the owner calls it, and still has a reference.
    pub(crate) fn return_reserve(&self) {
        if let Some(drawn) = self.drawn.take() {
            // Relaxed: the caller's own reference is removed later, and releases what the owner did.
            self.shared.fetch_add(drawn - RESERVE, Ordering::Relaxed);
        }
    }
}
