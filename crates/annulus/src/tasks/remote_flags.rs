//! The task flags that other threads set.
//!
//! The first thread that wakes the task puts it into its runtime's inbox. While it is there,
//! further wakes change nothing. The owner clears the flag when it takes the task out, before it
//! runs the task, so a wake that is too late for that run puts the task into the inbox again.
//!
//! `tests/task_refs.rs` replaces the atomics of the parent module with loom's, and tries every
//! order.

use super::atomic::{AtomicU8, Ordering};

/// The task is in the inbox, or a thread is about to put it there.
const IN_INBOX: u8 = 1;
/// The task must end instead of running.
const ABORTED: u8 = 2;

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
