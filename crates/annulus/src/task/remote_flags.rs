//! What other threads have asked of a task.
//!
//! Whoever calls first puts the task in its runtime's inbox; while it lies there, more calls change nothing. Home answers
//! before it runs the task, so a call that came too late to be answered finds the way to the inbox free again.
//!
//! The word is the parent's atomic: `tests/task_refs.rs` puts loom's in its place, and tries every order.

use super::atomic::{AtomicU8, Ordering};

/// The task lies in the inbox, or somebody is about to put it there.
const CALLED: u8 = 1;
/// Nobody wants it to run any more.
const ABORTED: u8 = 2;

pub(crate) struct Calls(AtomicU8);

impl Calls {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Calls from another thread. True where the caller must put the task in the inbox.
    pub(crate) fn call(&self) -> bool {
        // Releases what the task is to find, for `answer`; exchanges hand on what those before them released.
        self.0.fetch_or(CALLED, Ordering::AcqRel) & CALLED == 0
    }

    /// Home has taken the task out of the inbox.
    pub(crate) fn answer(&self) {
        self.0.fetch_and(!CALLED, Ordering::AcqRel);
    }

    /// The task is to end instead of running. Wake it after this, so that it does.
    pub(crate) fn abort(&self) {
        self.0.fetch_or(ABORTED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }
}
