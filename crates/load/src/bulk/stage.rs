//! What both ends share: how far the transfer is.

use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How far a transfer is. The sender moves it on, and the receiver follows.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// Edges of the measured time that have passed: none while warming up, both at the end.
    passed: AtomicUsize,
    received_all: AtomicBool,
}

/// Edges of the measured time.
pub(super) const EDGES: usize = 2;

impl Stage {
    pub(super) fn passed(&self) -> usize {
        // The numbers of the datagrams tell the rest: nothing else hangs on when this is seen.
        self.passed.load(Ordering::Relaxed)
    }

    /// An edge is passed.
    pub(super) fn pass(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn has_received_all(&self) -> bool {
        self.received_all.load(Ordering::Relaxed)
    }

    pub(super) fn receive_no_more(&self) {
        self.received_all.store(true, Ordering::Relaxed);
    }
}

/// What the clocks of a thread show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) time: Duration,
    pub(super) cpu: Duration,
}

impl Reading {
    pub(super) fn now() -> Reading {
        Reading { time: clock::now(), cpu: clock::thread_cpu() }
    }
}
