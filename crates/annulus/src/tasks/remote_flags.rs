//! The flags of a task that other threads set.
//!
//! The first thread that wakes the task puts it into its runtime's inbox; while it is there, further wakes change nothing. The owner
//! clears the flag when it takes the task out, before it runs the task. So a wake that comes too late for that run puts the task
//! into the inbox again.
//!
//! `tests/task_refs.rs` replaces the atomics of the parent module by loom's, and tries every order.

use super::atomic::{AtomicU8, Ordering};

/// The task is in the inbox, or a thread is about to put it there.
const IN_INBOX: u8 = 1;
/// The task is to end instead of running.
const ABORTED: u8 = 2;

pub(crate) struct RemoteFlags(AtomicU8);

impl RemoteFlags {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Wakes the task from another thread. True if the caller must put it into the inbox.
    pub(crate) fn enter_inbox(&self) -> bool {
        // Releases what the task is to see, for `leave_inbox`; read-modify-writes continue the release sequence of earlier ones.
        self.0.fetch_or(IN_INBOX, Ordering::AcqRel) & IN_INBOX == 0
    }

    /// The owner has taken the task out of the inbox.
    pub(crate) fn leave_inbox(&self) {
        self.0.fetch_and(!IN_INBOX, Ordering::AcqRel);
    }

    /// Makes the task end instead of running. It must be woken afterwards.
    pub(crate) fn abort(&self) {
        self.0.fetch_or(ABORTED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }
}
