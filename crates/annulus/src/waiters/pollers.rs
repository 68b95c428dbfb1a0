//! Tasks that wait by calling a poll function again and again.

use std::task::Waker;

/// Different tasks that may be kept at first.
const FIRST_LIMIT: usize = 64;
/// A task that polls again is mostly one of this many that polled last.
const RECENT: usize = 8;

/// The wakers of tasks that polled since the last notification. None of them has to come back, and none tells when its task loses
/// interest: all are woken, once.
#[derive(Debug)]
pub(super) struct Pollers {
    wakers: Vec<Waker>,
    limit: usize,
}

impl Default for Pollers {
    fn default() -> Self {
        Self { wakers: Vec::new(), limit: FIRST_LIMIT }
    }
}

impl Pollers {
    /// At the limit, which stands for tasks that are long gone, all are woken for nothing. Those that still wait poll again, and
    /// there is room for twice as many, so that this happens rarely, however many wait.
    #[inline]
    pub(super) fn register(&mut self, waker: &Waker, wakes: &mut Vec<Waker>) {
        if self.wakers.iter().rev().take(RECENT).any(|known| known.will_wake(waker)) {
            return;
        }
        if self.wakers.len() >= self.limit {
            wakes.append(&mut self.wakers);
            self.limit *= 2;
        }
        self.wakers.push(waker.clone());
    }

    #[inline]
    pub(super) fn notify(&mut self, wakes: &mut Vec<Waker>) {
        if !self.wakers.is_empty() {
            wakes.append(&mut self.wakers);
            self.limit = FIRST_LIMIT;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    pub(super) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.wakers.iter()
    }
}
