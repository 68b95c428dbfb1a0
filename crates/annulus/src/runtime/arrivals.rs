//! Signals of a simulated host, sent by a test. Signals of a process arrive through a pipe: see
//! `signal.rs`.

use super::ending::Ending;
use crate::unwind::wake_each;
use crate::waiters::{Wait, Waiters};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
#[cfg(feature = "sim")]
use std::time::Duration;

pub(crate) struct Arrivals {
    /// Number of arrivals of each caught signal, by signal number.
    counts: RefCell<BTreeMap<i32, u64>>,
    waiters: RefCell<Waiters>,
    pub(crate) ending: Ending,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { counts: RefCell::default(), waiters: RefCell::default(), ending: Ending::new() }
    }
}

impl Arrivals {
    /// Catches a signal from now on. Returns how often it has arrived before.
    pub(crate) fn catch(&self, signal: i32) -> u64 {
        *self.counts.borrow_mut().entry(signal).or_default()
    }

    /// Ready once the signal has arrived more often than `seen`, which is then updated.
    pub(crate) fn poll(&self, signal: i32, seen: &mut u64, cx: &Context<'_>) -> Poll<()> {
        let count = self.catch(signal);
        if count > *seen {
            *seen = count;
            return Poll::Ready(());
        }
        let (mut wakes, mut drops) = (Vec::new(), Vec::new());
        self.waiters.borrow_mut().wait(Wait::Polling, cx.waker(), &mut wakes, &mut drops);
        wake_each(wakes);
        Poll::Pending
    }

    /// Handles an arriving signal. Returns false if it is not caught, or ends the program anyway.
    #[cfg(feature = "sim")]
    pub(crate) fn deliver(&self, signal: i32, now: Duration) -> bool {
        let is_caught = self.counts.borrow_mut().get_mut(&signal).map(|count| *count += 1);
        if self.ending.on_signal(signal, now) {
            return false;
        }
        let mut wakes = Vec::new();
        self.waiters.borrow_mut().notify_all(&mut wakes);
        wake_each(wakes);
        is_caught.is_some()
    }

    pub(crate) fn waiting(&self) -> Vec<Waker> {
        self.waiters.borrow().wakers().cloned().collect()
    }
}
