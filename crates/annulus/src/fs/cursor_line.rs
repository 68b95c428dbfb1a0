//! The state of a file's cursor: whether it is free, and the calls that wait for it.

use crate::waiters::{WaiterId, Waiters};
use std::task::Waker;

/// A free cursor is reserved for the first call in line.
#[derive(Default)]
pub(super) struct CursorLine {
    taken: bool,
    waiters: Waiters,
}

impl CursorLine {
    /// Returns true if a call has the cursor or is in line for it.
    pub(super) fn is_taken(&self) -> bool {
        self.taken || self.waiters.ahead(None) > 0
    }

    /// Takes the cursor, or joins the line. Returns true if the cursor was taken. The caller drops
    /// the waker that remains.
    pub(super) fn poll(&mut self, id: &mut Option<WaiterId>, waker: &mut Option<Waker>) -> bool {
        if !self.taken && self.waiters.ahead(*id) == 0 {
            *waker = self.waiters.remove(id);
            self.taken = true;
            return true;
        }
        if let Some(new) = waker.take() {
            *waker = self.waiters.register_owned(id, new);
        }
        false
    }

    pub(super) fn give_back(&mut self) {
        self.taken = false;
    }

    /// Leaves the line. The caller drops the returned waker.
    pub(super) fn leave(&mut self, id: &mut Option<WaiterId>) -> Option<Waker> {
        self.waiters.remove(id)
    }

    /// Returns the waker of the first call in line, if the cursor is free and the call has not been
    /// notified yet.
    pub(super) fn notify_next(&mut self) -> Option<Waker> {
        self.waiters.notify_next(usize::from(!self.taken))
    }

    /// Returns true if the line must be checked again later, because the cursor is free and the
    /// first call in line has not taken it. Returns true only once until
    /// [`recheck`](Self::recheck).
    pub(super) fn needs_recheck(&mut self) -> bool {
        !self.taken && self.waiters.ahead(None) > 0 && self.waiters.list()
    }

    pub(super) fn recheck(&mut self) {
        self.waiters.recheck(usize::from(!self.taken));
    }
}
