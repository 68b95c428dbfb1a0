//! Signals that a test sends to a simulated host, and the decision whether SIGINT or SIGTERM ends a
//! process or a simulated host. Real signals arrive through a pair of sockets: see `signal.rs`.

use crate::unwind::wake_each;
use crate::waiters::{Wait, Waiters};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGTERM: i32 = 15;

/// Signals within this time of the first one belong to the same request: `timeout` and `npm` send
/// theirs twice, to the process and to its group.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// Decides whether SIGINT or SIGTERM ends a process or a simulated host, after an earlier one has
/// already asked it to end through `until_terminated` or `ctrl_c`. Signal handlers call this, so it
/// uses only atomics.
#[derive(Debug)]
pub(crate) struct EndRequest {
    /// Whether `until_terminated` has been called. From then on, SIGINT and SIGTERM request the
    /// end.
    is_enabled: AtomicBool,
    is_requested: AtomicBool,
    interrupt: EndSignal,
    terminate: EndSignal,
}

#[derive(Debug)]
struct EndSignal {
    /// Number of `Signals` values that currently catch the signal.
    caught: AtomicUsize,
    /// Time in nanoseconds from which the signal ends the process unless it is caught. Zero until
    /// the process has been asked to end.
    from: AtomicU64,
}

impl EndSignal {
    const fn new() -> Self {
        Self { caught: AtomicUsize::new(0), from: AtomicU64::new(0) }
    }

    fn request(&self, now: Duration) {
        let from = nanos(now + SAME_REQUEST);
        _ = self.from.compare_exchange(0, from, SeqCst, SeqCst);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl EndRequest {
    pub(crate) const fn new() -> Self {
        Self {
            is_enabled: AtomicBool::new(false),
            is_requested: AtomicBool::new(false),
            interrupt: EndSignal::new(),
            terminate: EndSignal::new(),
        }
    }

    /// Treats SIGINT and SIGTERM as the request to end from now on.
    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, SeqCst);
    }

    /// Returns true once a signal has arrived that `until_terminated` treats as the request to end.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested.load(SeqCst)
    }

    /// Records that the program waits for a signal, which therefore does not end it.
    pub(crate) fn catch(&self, signal: i32) {
        if let Some(ends) = self.ends(signal) {
            ends.caught.fetch_add(1, SeqCst);
        }
    }

    /// Records that the program no longer waits for a signal.
    pub(crate) fn release(&self, signal: i32) {
        if let Some(ends) = self.ends(signal) {
            ends.caught.fetch_sub(1, SeqCst);
        }
    }

    /// Records that a signal was delivered to the program as the request to end.
    pub(crate) fn request(&self, signal: i32, now: Duration) {
        if let Some(ends) = self.ends(signal) {
            ends.request(now);
        }
    }

    /// Handles an arriving signal. Returns true if it ends the process.
    pub(crate) fn on_signal(&self, signal: i32, now: Duration) -> bool {
        let Some(ends) = self.ends(signal) else { return false };
        if self.is_enabled.load(SeqCst) && !self.is_requested.swap(true, SeqCst) {
            self.interrupt.request(now);
            self.terminate.request(now);
            return false;
        }
        let from = ends.from.load(SeqCst);
        from != 0 && nanos(now) >= from && ends.caught.load(SeqCst) == 0
    }

    fn ends(&self, signal: i32) -> Option<&EndSignal> {
        match signal {
            SIGINT => Some(&self.interrupt),
            SIGTERM => Some(&self.terminate),
            _ => None,
        }
    }
}

pub(crate) struct SimulatedSignals {
    /// Number of arrivals of each caught signal, by signal number.
    counts: RefCell<BTreeMap<i32, u64>>,
    waiters: RefCell<Waiters>,
    pub(crate) ending: EndRequest,
}

impl Default for SimulatedSignals {
    fn default() -> Self {
        Self { counts: RefCell::default(), waiters: RefCell::default(), ending: EndRequest::new() }
    }
}

impl SimulatedSignals {
    /// Catches a signal from now on. Returns the number of times that it has arrived since it was
    /// first caught.
    pub(crate) fn catch(&self, signal: i32) -> u64 {
        *self.counts.borrow_mut().entry(signal).or_default()
    }

    /// Returns `Ready` once the signal has arrived more often than `seen`, and updates `seen`.
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

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(10);

    #[test]
    fn second_signal_of_either_kind_ends_the_process() {
        for second in [SIGINT, SIGTERM] {
            let ending = EndRequest::new();
            assert!(!ending.on_signal(SIGINT, START), "the request is not enabled");
            ending.enable();
            assert!(!ending.is_requested());
            assert!(!ending.on_signal(SIGINT, START) && ending.is_requested());
            assert!(!ending.on_signal(second, START + SAME_REQUEST / 2), "within the same request");
            assert!(ending.on_signal(second, START + SAME_REQUEST));
            assert!(!ending.on_signal(1, START + 2 * SAME_REQUEST), "SIGHUP");
        }
    }

    #[test]
    fn caught_signal_does_not_end_the_process() {
        let ending = EndRequest::new();
        ending.catch(SIGINT);
        ending.request(SIGINT, START);
        assert!(!ending.on_signal(SIGINT, START + SAME_REQUEST));
        assert!(
            !ending.on_signal(SIGTERM, START + SAME_REQUEST),
            "only SIGINT has asked for the end"
        );
        ending.release(SIGINT);
        assert!(ending.on_signal(SIGINT, START + SAME_REQUEST));
        assert!(!ending.is_requested());
    }
}
