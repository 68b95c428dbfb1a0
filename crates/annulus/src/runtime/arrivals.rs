//! The signals of a simulated host, which a test sends. Signals of a process come through a pipe, see `signal.rs`.

use super::ending::Ending;
use crate::unwind::wake_each;
use crate::waiters::{Wait, Waiters};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
#[cfg(feature = "sim")]
use std::time::Duration;

pub(crate) struct Arrivals {
    /// How often each signal has come that is or was caught, by its number.
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
    /// Catches a signal from now on; how often it has come before.
    pub(crate) fn catch(&self, signal: i32) -> u64 {
        *self.counts.borrow_mut().entry(signal).or_default()
    }

    /// Ready once it has come more often than was seen; then all are seen.
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

    /// A signal has come. Returns false if it is not caught, or ends the program all the same.
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
