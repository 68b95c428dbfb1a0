//! State that both ends share: how far the transfer has come.

use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The start and the end of the measured time.
pub(super) const EDGES: usize = 2;

/// How far a transfer has come. The sender passes an edge, the receiver follows at the next datagram.
///
/// The values say nothing about other memory, so relaxed order is enough.
#[derive(Debug, Default)]
pub(super) struct TransferState {
    /// Edges that the sender has passed.
    passed: AtomicUsize,
    /// Edges that the receiver has seen.
    seen: AtomicUsize,
    finished: AtomicBool,
}

impl TransferState {
    pub(super) fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    /// The sender passes an edge.
    pub(super) fn pass(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    /// The receiver has seen an edge.
    pub(super) fn see(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// The receiver has seen the end of the transfer.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Relaxed);
    }
}

/// The clocks of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    pub(super) time: Duration,
    pub(super) cpu: Duration,
}

impl ClockSample {
    pub(super) fn now() -> ClockSample {
        ClockSample { time: clock::now(), cpu: clock::thread_cpu() }
    }
}
