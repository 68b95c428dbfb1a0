//! The waker of the future that `block_on` runs.

use super::owner::is_home;
use crate::runtime::remote::Remote;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// A flag, and the loop to wake if another thread raises it.
pub(crate) struct RootWaker {
    woken: AtomicBool,
    remote: Arc<Remote>,
}

impl RootWaker {
    /// A waker that starts raised, so that the future is polled once.
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { woken: AtomicBool::new(true), remote }
    }

    /// Whether the future was woken since the last call.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Acquire pairs with the release in `wake`: what was done before waking is seen by the poll.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }

    /// Whether the future waits to be polled.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for RootWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        // On its own thread this tells a turn that has begun not to sleep.
        match is_home(&self.remote) {
            true => self.remote.wake_loop(),
            false => self.remote.wake(),
        }
    }
}
