//! Where the clients of one run write down what happens to them.

use crate::clock;
use crate::fault::Fault;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The longest latency told apart, in ns: an hour. What takes longer counts as an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Latencies are kept to three significant digits.
const DIGITS: u8 = 3;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measuring,
    Over,
}

/// Shared by all clients of a run: they are tasks of one thread.
pub(crate) struct Board {
    phase: Cell<Phase>,
    histogram: RefCell<Histogram<u64>>,
    failed: Cell<u64>,
    faults: RefCell<Faults>,
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
            phase: Cell::new(Phase::WarmUp),
            histogram: RefCell::new(histogram),
            failed: Cell::new(0),
            faults: RefCell::default(),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Whether clients go on with another message.
    pub(crate) fn is_open(&self) -> bool {
        self.phase.get() != Phase::Over
    }

    /// Notes a response to what was sent at `started`; returns now, when the next message starts.
    pub(crate) fn answered(&self, started: u64) -> u64 {
        let now = clock::nanos();
        if self.phase.get() == Phase::Measuring {
            self.histogram.borrow_mut().saturating_record(now - started);
        }
        now
    }

    /// Responses within the window so far.
    pub(crate) fn responses(&self) -> u64 {
        self.histogram.borrow().len()
    }

    /// Notes that `client` failed.
    pub(crate) fn fault(&self, client: usize, fault: &Fault) {
        if self.phase.get() == Phase::Measuring {
            self.failed.set(self.failed.get() + 1);
        }
        let mut faults = self.faults.borrow_mut();
        *faults.by_kind.entry(fault.kind.name().to_owned()).or_default() += 1;
        faults.first.get_or_insert_with(|| format!("client {client}: {}", fault.detail));
    }

    pub(crate) fn is_flawless(&self) -> bool {
        self.faults.borrow().by_kind.is_empty()
    }

    /// Takes everything off the board.
    pub(crate) fn findings(&self) -> Findings {
        let histogram =
            self.histogram.replace(Histogram::new(DIGITS).expect("a constant number of digits"));
        Findings { histogram, failed: self.failed.take(), faults: self.faults.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    #[test]
    fn only_the_window_counts() {
        let board = Board::new();
        board.answered(clock::nanos());
        board.enter(Phase::Measuring);
        let next = board.answered(clock::nanos());
        board.answered(next);
        board.enter(Phase::Over);
        board.answered(clock::nanos());
        assert!(!board.is_open());
        assert_eq!(board.findings().histogram.len(), 2);
    }

    #[test]
    fn failures_are_counted_by_kind_and_the_first_is_kept() {
        let board = Board::new();
        board.fault(3, &Fault::new(Kind::Reset, "one"));
        board.enter(Phase::Measuring);
        board.fault(4, &Fault::new(Kind::Reset, "two"));
        board.fault(5, &Fault::new(Kind::WrongBytes, "three"));
        assert!(!board.is_flawless());
        let Findings { failed, faults, .. } = board.findings();
        assert_eq!(failed, 2);
        assert_eq!(
            faults.by_kind,
            BTreeMap::from([("reset".into(), 2), ("wrong bytes".into(), 1)])
        );
        assert_eq!(faults.first.as_deref(), Some("client 3: one"));
    }
}
