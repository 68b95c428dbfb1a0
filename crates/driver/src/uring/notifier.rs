//! An eventfd that signals to another event loop that the ring has something to do.
//!
//! Other threads write to the same eventfd. If they wrote to a second eventfd that the ring polls,
//! the kernel would signal the first one from within the wake-up of the second. The kernel delays
//! such a nested signal by an RCU grace period, which takes milliseconds.

use super::Uring;
use annulus_kernel::{descriptor, named};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

impl Uring {
    /// Makes the ring signal this eventfd while the notifier is enabled. Each ring has at most one.
    /// Returns a duplicate of the eventfd.
    pub(crate) fn notifier(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (for_workers, notifier) =
            (descriptor::duplicate(eventfd)?, descriptor::duplicate(eventfd)?);
        self.ring.register_eventfd(eventfd).map_err(named("io_uring_register"))?;
        self.files.set_notifier(for_workers.into());
        self.hosted = true;
        Ok(notifier)
    }

    /// Returns true if a turn that does not wait may skip its system call: another event loop is
    /// notified of later events, and nothing is left to submit or to collect now.
    #[inline]
    pub(super) fn needs_no_enter(&self) -> bool {
        self.hosted && self.has_nothing_queued() && !self.ring.has_deferred_work()
    }

    #[inline]
    pub(crate) fn has_nothing_queued(&self) -> bool {
        self.has_started_all() && self.files.is_empty() && !self.ring.overflowed()
    }

    #[inline]
    pub(crate) fn enable_notifier(&mut self) -> bool {
        self.ring.set_eventfd_enabled(true);
        // Completions that arrived earlier, and deferred work that waits for `io_uring_enter`, are
        // not signalled again.
        self.has_nothing_queued() && self.ring.ready() == 0 && !self.ring.has_deferred_work()
    }

    #[inline]
    pub(crate) fn disable_notifier(&mut self) {
        self.ring.set_eventfd_enabled(false);
    }
}
