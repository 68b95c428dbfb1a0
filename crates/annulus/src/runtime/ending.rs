//! Decides whether SIGINT or SIGTERM ends a process, after an earlier one has already asked it to
//! end through `until_terminated` or `ctrl_c`.
//!
//! Signal handlers call this, so it uses only atomics.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGTERM: i32 = 15;

/// Signals within this time of the first one belong to the same request: `timeout` and `npm` send
/// theirs twice, to the process and to its group.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// Whether a process or a simulated host has been asked to end.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Whether `until_terminated` has been called. From then on, these signals request the end.
    is_armed: AtomicBool,
    is_asked: AtomicBool,
    interrupt: Ends,
    terminate: Ends,
}

/// One of the two signals.
#[derive(Debug)]
struct Ends {
    /// Number of `Signals` that catch it now.
    caught: AtomicUsize,
    /// Time in nanoseconds from which the signal ends the process unless it is caught. Zero until
    /// the process has been asked to end.
    from: AtomicU64,
}

impl Ends {
    const fn new() -> Self {
        Self { caught: AtomicUsize::new(0), from: AtomicU64::new(0) }
    }

    fn ask(&self, now: Duration) {
        let from = nanos(now + SAME_REQUEST);
        _ = self.from.compare_exchange(0, from, SeqCst, SeqCst);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Ending {
    pub(crate) const fn new() -> Self {
        Self {
            is_armed: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            interrupt: Ends::new(),
            terminate: Ends::new(),
        }
    }

    /// Treats either signal as the request to end from now on.
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, SeqCst);
    }

    /// Returns true once `until_terminated` has been asked to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(SeqCst)
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
    pub(crate) fn ask(&self, signal: i32, now: Duration) {
        if let Some(ends) = self.ends(signal) {
            ends.ask(now);
        }
    }

    /// Handles an arriving signal. Returns true if it ends the process.
    pub(crate) fn on_signal(&self, signal: i32, now: Duration) -> bool {
        let Some(ends) = self.ends(signal) else { return false };
        if self.is_armed.load(SeqCst) && !self.is_asked.swap(true, SeqCst) {
            self.interrupt.ask(now);
            self.terminate.ask(now);
            return false;
        }
        let from = ends.from.load(SeqCst);
        from != 0 && nanos(now) >= from && ends.caught.load(SeqCst) == 0
    }

    fn ends(&self, signal: i32) -> Option<&Ends> {
        match signal {
            SIGINT => Some(&self.interrupt),
            SIGTERM => Some(&self.terminate),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(10);

    #[test]
    fn second_signal_of_either_kind_ends_the_process() {
        for second in [SIGINT, SIGTERM] {
            let ending = Ending::new();
            assert!(!ending.on_signal(SIGINT, START), "the ending is not armed");
            ending.arm();
            assert!(!ending.is_asked());
            assert!(!ending.on_signal(SIGINT, START) && ending.is_asked());
            assert!(!ending.on_signal(second, START + SAME_REQUEST / 2), "within the same request");
            assert!(ending.on_signal(second, START + SAME_REQUEST));
            assert!(!ending.on_signal(1, START + 2 * SAME_REQUEST), "SIGHUP");
        }
    }

    #[test]
    fn caught_signal_does_not_end_the_process() {
        let ending = Ending::new();
        ending.catch(SIGINT);
        ending.ask(SIGINT, START);
        assert!(!ending.on_signal(SIGINT, START + SAME_REQUEST));
        assert!(
            !ending.on_signal(SIGTERM, START + SAME_REQUEST),
            "only SIGINT has asked for the end"
        );
        ending.release(SIGINT);
        assert!(ending.on_signal(SIGINT, START + SAME_REQUEST));
        assert!(!ending.is_asked());
    }
}
