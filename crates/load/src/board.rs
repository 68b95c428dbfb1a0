//! Where the clients of one run write down what happens to them.

use crate::fault::Fault;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest latency told apart, in ns: an hour. What takes longer counts as an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Latencies are kept to three significant digits.
const DIGITS: u8 = 3;
/// Latencies a client keeps to itself before it takes the lock.
const PAD: usize = 64;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measuring,
    Over,
    /// The run was interrupted: what ends now has not failed.
    Interrupted,
}

/// Shared by all clients of a run, be they tasks or threads.
pub(crate) struct Board {
    /// A [`Phase`] by number. Nothing else is read by it, so its order with other memory does not matter.
    phase: AtomicU8,
    /// From when to when clients had to wait, before the window opened.
    pause: [AtomicU64; 2],
    histogram: Mutex<Histogram<u64>>,
    failed: AtomicU64,
    faults: Mutex<Faults>,
}

/// Failures by kind, and the first of them in words.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) by_kind: BTreeMap<String, u64>,
    pub(crate) first: Option<String>,
}

/// What a run left on the board.
pub(crate) struct Findings {
    pub(crate) histogram: Histogram<u64>,
    /// Requests that failed within the window.
    pub(crate) failed: u64,
    pub(crate) faults: Faults,
}

impl Board {
    pub(crate) fn new() -> Board {
        let histogram =
            Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("bounds that are constants");
        Board {
            phase: AtomicU8::new(Phase::WarmUp as u8),
            pause: Default::default(),
            histogram: Mutex::new(histogram),
            failed: AtomicU64::new(0),
            faults: Mutex::default(),
        }
    }

    /// Opens the window after a pause that is no client's fault: what was under way is as late as if there had been none.
    pub(crate) fn open(&self, pause: Range<u64>) {
        let [from, to] = &self.pause;
        from.store(pause.start, Relaxed);
        to.store(pause.end, Relaxed);
        self.enter(Phase::Measuring);
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Whether clients go on with another message.
    pub(crate) fn is_open(&self) -> bool {
        self.phase.load(Relaxed) < Phase::Over as u8
    }

    /// Whether what happens now counts.
    pub(crate) fn is_measuring(&self) -> bool {
        self.phase.load(Relaxed) == Phase::Measuring as u8
    }

    /// A latency that ends now, without what the pause has of it.
    fn without_pause(&self, latency: u64, now: u64) -> u64 {
        let began = now.saturating_sub(latency);
        let [from, to] = self.pause.each_ref().map(|edge| edge.load(Relaxed));
        latency - to.saturating_sub(began.max(from)).min(latency)
    }

    /// Responses within the window so far, but for those still on pads.
    pub(crate) fn responses(&self) -> u64 {
        hold(&self.histogram).len()
    }

    /// Notes that `client` failed, with so many requests under way.
    pub(crate) fn fault(&self, client: usize, requests: u64, fault: &Fault) {
        if self.phase.load(Relaxed) == Phase::Interrupted as u8 {
            return;
        }
        if self.is_measuring() {
            self.failed.fetch_add(requests, Relaxed);
        }
        hold(&self.faults).note(client, fault);
    }

    pub(crate) fn is_flawless(&self) -> bool {
        hold(&self.faults).by_kind.is_empty()
    }

    /// Takes everything off the board; the pads are to be gone.
    pub(crate) fn findings(&self) -> Findings {
        let empty = Histogram::new(DIGITS).expect("a constant number of digits");
        Findings {
            histogram: std::mem::replace(&mut hold(&self.histogram), empty),
            failed: self.failed.swap(0, Relaxed),
            faults: std::mem::take(&mut hold(&self.faults)),
        }
    }
}

impl Faults {
    pub(crate) fn note(&mut self, client: usize, fault: &Fault) {
        *self.by_kind.entry(fault.kind.name().to_owned()).or_default() += 1;
        self.first.get_or_insert_with(|| format!("client {client}: {}", fault.detail));
    }
}

/// What is behind the locks is whole at any time, even where a holder panicked.
fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One client's latencies on their way to the board; what is left goes there when this is dropped.
pub(crate) struct Pad {
    board: Arc<Board>,
    latencies: Vec<u64>,
}

impl Pad {
    pub(crate) fn new(board: Arc<Board>) -> Pad {
        Pad { board, latencies: Vec::with_capacity(PAD) }
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Notes the latency of a response that came now, in ns, where that is within the window.
    pub(crate) fn note(&mut self, latency: u64, now: u64) {
        if self.board.is_measuring() {
            self.latencies.push(self.board.without_pause(latency, now));
            if self.latencies.len() == PAD {
                self.hand_in();
            }
        }
    }

    fn hand_in(&mut self) {
        let mut histogram = hold(&self.board.histogram);
        self.latencies.drain(..).for_each(|latency| histogram.saturating_record(latency));
    }
}

impl Drop for Pad {
    fn drop(&mut self) {
        self.hand_in();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    #[test]
    fn only_the_window_counts() {
        let board = Arc::new(Board::new());
        let fault = Fault::new(Kind::Reset, "as expected");
        let mut pad = Pad::new(Arc::clone(&board));
        pad.note(5, 5);
        board.fault(0, 1, &fault);
        board.open(10..10);
        assert!(board.is_open());
        (1..=100).for_each(|latency| pad.note(latency, 200));
        board.fault(3, 2, &fault);
        board.enter(Phase::Over);
        pad.note(5, 300);
        assert!(!board.is_open() && !board.is_flawless());
        drop(pad);
        let Findings { histogram, failed, faults } = board.findings();
        assert_eq!((histogram.len(), histogram.max(), failed), (100, 100, 2));
        assert_eq!(faults.by_kind["reset"], 2);
        assert_eq!(faults.first.as_deref(), Some("client 0: as expected"));
    }

    #[test]
    fn a_latency_beyond_the_longest_counts_as_the_longest() {
        let board = Arc::new(Board::new());
        board.open(0..0);
        Pad::new(Arc::clone(&board)).note(u64::MAX, u64::MAX);
        assert_eq!(board.findings().histogram.len(), 1);
    }

    #[test]
    fn the_pause_before_the_window_is_in_no_latency() {
        let board = Board::new();
        board.open(100..140);
        // Begun before the pause, in it, at its end, after it.
        for (began, latency) in [(90, 20), (120, 10), (140, 10), (145, 5)] {
            assert_eq!(board.without_pause(150 - began, 150), latency, "begun at {began}");
        }
    }
}
