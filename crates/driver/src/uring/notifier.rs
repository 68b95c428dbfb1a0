//! An eventfd that signals to another event loop that the ring has something to do.
//!
//! Other threads write to it as well: the kernel signals the eventfd of a ring from within the wake-up of another eventfd only after a
//! grace period of RCU, which takes milliseconds.

use super::Uring;
use annulus_kernel::{descriptor, named};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

impl Uring {
    /// Has the ring signal this eventfd while it is armed; one a ring.
    pub(crate) fn notifier(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (for_workers, notifier) =
            (descriptor::duplicate(eventfd)?, descriptor::duplicate(eventfd)?);
        self.ring.register_eventfd(eventfd).map_err(named("io_uring_register"))?;
        self.files.set_notifier(for_workers.into());
        self.hosted = true;
        Ok(notifier)
    }

    /// Whether a turn that does not wait may leave out its system call: another event loop is notified of what comes later, and no
    /// entry, completion or file call is queued now.
    #[inline]
    pub(super) fn needs_no_enter(&self) -> bool {
        self.hosted && self.has_nothing_queued() && !self.ring.work_pending()
    }

    #[inline]
    pub(crate) fn has_nothing_queued(&self) -> bool {
        self.is_clear() && self.files.is_empty() && !self.ring.overflowed()
    }

    #[inline]
    pub(crate) fn arm(&mut self) -> bool {
        self.ring.notify(true);
        // Completions came before it was on, or deferred work waits for an enter; neither is signalled again.
        self.has_nothing_queued() && self.ring.ready() == 0 && !self.ring.work_pending()
    }

    #[inline]
    pub(crate) fn disarm(&mut self) {
        self.ring.notify(false);
    }
}
