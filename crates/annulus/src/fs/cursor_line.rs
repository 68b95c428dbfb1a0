//! Whether the cursor of a file is free, and the calls that wait for it.

use crate::waiters::{WaiterId, Waiters};
use std::task::Waker;

/// A free cursor is for the first call in line; no other may take it.
#[derive(Default)]
pub(super) struct CursorLine {
    taken: bool,
    waiters: Waiters,
}

impl CursorLine {
    /// Whether a call has the cursor, or is in line for it.
    pub(super) fn is_taken(&self) -> bool {
        self.taken || self.waiters.ahead(None) > 0
    }

    /// Takes the cursor, or joins the line. True if it was taken. The caller drops the waker that is left.
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

    /// Leaves the line. The caller drops the waker.
    pub(super) fn leave(&mut self, id: &mut Option<WaiterId>) -> Option<Waker> {
        self.waiters.remove(id)
    }

    /// The waker of the first call in line, if the cursor is free and it was not notified yet.
    pub(super) fn notify_next(&mut self) -> Option<Waker> {
        self.waiters.notify_next(usize::from(!self.taken))
    }

    /// Whether the line is to be checked again later: the cursor is free, and the first in line has not taken it. True once until
    /// [`recheck`](Self::recheck).
    pub(super) fn needs_recheck(&mut self) -> bool {
        !self.taken && self.waiters.ahead(None) > 0 && self.waiters.list()
    }

    pub(super) fn recheck(&mut self) {
        self.waiters.recheck(usize::from(!self.taken));
    }
}
