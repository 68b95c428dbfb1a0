//! The parts of a task that other threads may change: its reference count and its flags.
//!
//! `tests/task_refs.rs` replaces the atomics of the parent module with loom's, which tries every
//! order of the threads' steps.

use super::atomic::{AtomicI64, AtomicU8, Cell, Ordering, fence};

/// More references than can exist. The value is as far from zero as from overflow.
const RESERVED_REFS: i64 = 1 << 62;

/// A reference count that the task's owner changes without a locked operation. The whole protocol:
///
/// The shared count starts with a reserve far above the number of references that can exist. The
/// owner draws its references from that reserve, and records in a plain cell how many it has drawn.
/// Other threads add and subtract one at a time. While the reserve is in the count, the count
/// cannot reach zero, and the owner need not check for it. When the task is done, the owner returns
/// the part of the reserve that it has not drawn. From then on the count is the number of
/// references held by all threads, and the release that takes it to zero is the last.
///
/// The cell makes it `!Sync`. Code that shares it nevertheless must pass `owner` as true only on
/// the owner's thread.
pub(crate) struct Refs {
    shared: AtomicI64,
    /// The number of references that the owner has drawn. Negative if the owner has dropped
    /// references that other threads created, and `None` once the reserve has been returned. Only
    /// the owner uses it. It is a cell because another thread may free the memory while `self` is
    /// still borrowed, and for a cell the compiler does not assume that it stays allocated.
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

/// The task is in the inbox, or a thread is about to put it there.
const IN_INBOX: u8 = 1;
/// The task must end instead of running.
const ABORTED: u8 = 2;

/// The task flags that other threads set.
///
/// The first thread that wakes the task puts it into its runtime's inbox. While it is there,
/// further wakes change nothing. The owner clears the flag when it takes the task out, before it
/// runs the task, so a wake that is too late for that run puts the task into the inbox again.
pub(crate) struct RemoteFlags(AtomicU8);

impl RemoteFlags {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Wakes the task from another thread. Returns true if the caller must put it into the inbox.
    pub(crate) fn mark_in_inbox(&self) -> bool {
        // Releases what the task must see, for `leave_inbox`. Read-modify-writes continue the
        // release sequence of earlier ones.
        self.0.fetch_or(IN_INBOX, Ordering::AcqRel) & IN_INBOX == 0
    }

    /// Records that the owner has taken the task out of the inbox.
    pub(crate) fn leave_inbox(&self) {
        self.0.fetch_and(!IN_INBOX, Ordering::AcqRel);
    }

    /// Makes the task end instead of running. The caller must wake it afterwards.
    pub(crate) fn abort(&self) {
        self.0.fetch_or(ABORTED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }
}
