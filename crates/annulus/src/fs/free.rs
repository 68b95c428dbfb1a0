//! The free permits of a set, and the tasks that wait for one.

use crate::waiters::{WaiterId, Waiters};
use std::task::Waker;

/// Free permits, by number. A free permit is for the first task in line; no other task may take it.
pub(super) struct FreePermits {
    numbers: Vec<u32>,
    waiters: Waiters,
}

impl FreePermits {
    pub(super) fn new(count: u32) -> Self {
        // Low numbers are taken first: the buffers that were returned last are likely to be in cache.
        Self { numbers: (0..count).rev().collect(), waiters: Waiters::default() }
    }

    /// Permits that are free and not for a task in line.
    pub(super) fn available(&self) -> usize {
        self.numbers.len().saturating_sub(self.waiters.ahead(None))
    }

    /// Takes a permit that is not for a task in line.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.available() == 0 { None } else { self.numbers.pop() }
    }

    /// Takes a permit, or joins the line. The caller drops the waker that is left.
    pub(super) fn poll(
        &mut self,
        id: &mut Option<WaiterId>,
        waker: &mut Option<Waker>,
    ) -> Option<u32> {
        if self.waiters.ahead(*id) < self.numbers.len() {
            *waker = self.waiters.remove(id);
            return self.numbers.pop();
        }
        if let Some(new) = waker.take() {
            *waker = self.waiters.register_owned(id, new);
        }
        None
    }

    pub(super) fn give_back(&mut self, number: u32) {
        self.numbers.push(number);
    }

    /// Leaves the line. The caller drops the waker.
    pub(super) fn leave(&mut self, id: &mut Option<WaiterId>) -> Option<Waker> {
        self.waiters.remove(id)
    }

    /// The waker of the next task in line that has a permit and was not notified yet.
    pub(super) fn notify_next(&mut self) -> Option<Waker> {
        self.waiters.notify_next(self.numbers.len())
    }

    /// Whether the line is to be checked again later: a permit is free, and the tasks in line have not taken it. True once until
    /// [`recheck`](Self::recheck).
    pub(super) fn needs_recheck(&mut self) -> bool {
        !self.numbers.is_empty() && self.waiters.ahead(None) > 0 && self.waiters.list()
    }

    pub(super) fn recheck(&mut self) {
        self.waiters.recheck(self.numbers.len());
    }
}
