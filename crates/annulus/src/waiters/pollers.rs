//! Tasks that wait by calling a poll function again and again.

use std::task::Waker;

/// The initial limit on the number of wakers.
const FIRST_LIMIT: usize = 64;
/// A task that polls again is usually among the last this many.
const RECENT: usize = 8;

/// The wakers of tasks that have polled since the last notification. Nothing shows when a task
/// stops waiting, so a notification wakes all of them, once.
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
    /// Adds a waker. At the limit, most wakers are assumed to belong to tasks that no longer wait,
    /// and all are woken: tasks that still wait poll again. The limit doubles each time, so this is
    /// rare however many tasks wait.
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
