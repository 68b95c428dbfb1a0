//! The kernel's counts while a run is measured: retransmits, drops, and how long the load waited for a core.

mod counters;
mod run_queue;

use crate::observer::{Observer, Progress};
use crate::recording::Interval;
pub(crate) use counters::Counters;
use std::time::Duration;

/// The kernel's counts within the measured window; `None` where it does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SystemUse {
    /// The counters of all programs in the network namespace.
    pub(crate) counters: Option<Counters>,
    /// How long the threads of this process were ready to run and did not, together.
    pub(crate) waited: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Edge {
    counters: Option<Counters>,
    waited: Option<Duration>,
}

impl Edge {
    fn read() -> Edge {
        Edge { counters: Counters::read(), waited: run_queue::waited() }
    }
}

/// An observer that reads the kernel's counters at the edges of the window, and passes everything on.
pub(crate) struct Edges<'a> {
    observer: &'a mut dyn Observer,
    opened: Option<Edge>,
    used: SystemUse,
}

impl<'a> Edges<'a> {
    pub(crate) fn new(observer: &'a mut dyn Observer) -> Edges<'a> {
        Edges { observer, opened: None, used: SystemUse::default() }
    }

    /// The counts within the window; empty if it was not opened and closed.
    pub(crate) fn used(&self) -> SystemUse {
        self.used
    }
}

impl Observer for Edges<'_> {
    fn window_opened(&mut self) {
        self.opened = Some(Edge::read());
        self.observer.window_opened();
    }

    fn window_closed(&mut self) {
        self.observer.window_closed();
        let Some(opened) = self.opened else { return };
        let closed = Edge::read();
        let counters = closed.counters.zip(opened.counters);
        let waited = closed.waited.zip(opened.waited);
        self.used = SystemUse {
            counters: counters.map(|(now, before)| now.since(before)),
            waited: waited.map(|(now, before)| now.saturating_sub(before)),
        };
    }

    fn interval(&mut self, interval: &Interval) {
        self.observer.interval(interval);
    }

    fn progress(&mut self, progress: Progress) {
        self.observer.progress(progress);
    }

    fn is_interrupted(&self) -> bool {
        self.observer.is_interrupted()
    }
}
