//! The reference count of a task, which the task's owner changes without a locked operation. The
//! whole protocol:
//!
//! The shared count starts with a reserve far above the number of references that can exist. The
//! owner draws its references from that reserve, and records in a plain cell how many it has drawn.
//! Other threads add and subtract one at a time. While the reserve is in the count, the count
//! cannot reach zero, and nobody checks for zero. When the task is done, the owner returns the part
//! of the reserve that it has not drawn. From then on the count is the number of references held by
//! all threads, and the release that takes it to zero is the last.
//!
//! `tests/task_refs.rs` replaces the atomics of the parent module with loom's, and tries every
//! order.

use super::atomic::{AtomicI64, Cell, Ordering, fence};

/// More references than can exist, and equally far from overflow.
const RESERVED_REFS: i64 = 1 << 62;

/// A reference count. The cell makes it `!Sync`. Code that shares it nevertheless must pass `owner`
/// as true only on the owner's thread.
pub(crate) struct Refs {
    shared: AtomicI64,
    /// The number of references that the owner has drawn. Negative if the owner has dropped
    /// references that other threads created, and `None` once the reserve has been returned. Only
    /// the owner uses it. It is a cell because the memory may be freed while `self` is borrowed.
    drawn: Cell<Option<i64>>,
}

impl Refs {
    /// Creates a count with this many references, drawn by the owner.
    pub(crate) fn new(drawn: i64) -> Self {
        Self { shared: AtomicI64::new(RESERVED_REFS), drawn: Cell::new(Some(drawn)) }
    }

    /// Adds a reference, copied from an existing one.
    #[inline]
    pub(crate) fn add(&self, owner: bool) {
        if owner && let Some(drawn) = self.drawn.get() {
            return self.drawn.set(Some(drawn + 1));
        }
        // Relaxed, as in `Arc`: the existing reference keeps the task alive.
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a reference. Returns true if it was the last; then everything that other threads did
    /// with the task is visible here.
    #[inline]
    pub(crate) fn release(&self, owner: bool) -> bool {
        if owner && let Some(drawn) = self.drawn.get() {
            self.drawn.set(Some(drawn - 1));
            return false;
        }
        // Releases what was done with this reference; the fence acquires what was done with the
        // earlier ones.
        let last = self.shared.fetch_sub(1, Ordering::Release) == 1;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }

    /// Returns true if the reserve has been returned. Threads other than the owner's may see this
    /// late.
    pub(crate) fn is_returned(&self) -> bool {
        self.shared.load(Ordering::Relaxed) < RESERVED_REFS / 2
    }

    /// Returns the reserve. Only the owner calls this, while it still holds a reference.
    pub(crate) fn return_reserve(&self) {
        if let Some(drawn) = self.drawn.take() {
            // Relaxed: the caller's own reference is removed later, and that releases what the
            // owner did.
            self.shared.fetch_add(drawn - RESERVED_REFS, Ordering::Relaxed);
        }
    }
}
