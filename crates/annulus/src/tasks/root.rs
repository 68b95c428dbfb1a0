//! The waker of the root future, which `block_on` runs.

use super::owner::is_owner;
use crate::tasks::remote::Remote;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// A flag that wakes set, and the inbox of the runtime, through which they wake its loop.
pub(crate) struct RootWaker {
    woken: AtomicBool,
    remote: Arc<Remote>,
}

impl RootWaker {
    /// Creates a waker that starts woken, so that the future is polled once.
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { woken: AtomicBool::new(true), remote }
    }

    /// Returns true if the future has been woken since the last call.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Acquire pairs with the release in `wake`: the poll sees what was done before the wake.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }

    /// Returns true if the future has been woken and not polled since.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for RootWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        // On the owner's thread this keeps the loop from sleeping at the end of the turn.
        match is_owner(&self.remote) {
            true => self.remote.wake_loop(),
            false => self.remote.wake(),
        }
    }
}
