//! The measured window: open, watch, close.

use crate::clock;
use crate::metrics::{Metrics, Phase};
use crate::run::{Observer, Progress};
use std::ops::ControlFlow;
use std::time::Duration;

/// What the clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// Tasks of the observing thread: they wait while the observer runs.
    Tasks,
    /// Threads: they continue meanwhile.
    Threads,
}

impl ClientKind {
    /// The CPU time they have used.
    fn cpu(self) -> Duration {
        match self {
            ClientKind::Tasks => clock::thread_cpu(),
            ClientKind::Threads => clock::process_cpu(),
        }
    }
}

/// The measured time, and the CPU time of the load in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// When measuring began, since the Unix epoch.
    pub(crate) started: Duration,
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
    /// Whether the observer ended the run early.
    pub(crate) interrupted: bool,
}

impl Measured {
    /// An amount divided by the measured time; 0 if nothing was measured.
    pub(crate) fn per_second(self, amount: f64) -> f64 {
        if self.length.is_zero() { 0.0 } else { amount / self.length.as_secs_f64() }
    }

    /// Nothing was measured, as the run was interrupted before.
    pub(crate) fn interrupted() -> Measured {
        Measured { interrupted: true, ..Measured::default() }
    }
}

/// Breaks if the observer interrupts.
pub(crate) fn check_interrupted(observer: &dyn Observer) -> ControlFlow<()> {
    match observer.is_interrupted() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// An open window.
pub(crate) struct Measuring<'a> {
    observer: &'a mut dyn Observer,
    metrics: &'a Metrics,
    total: Duration,
    clients: ClientKind,
    began: Duration,
    started: Duration,
    cpu: Duration,
}

impl<'a> Measuring<'a> {
    /// Opens the window once the observer is ready.
    pub(crate) fn open(
        observer: &'a mut dyn Observer,
        metrics: &'a Metrics,
        total: Duration,
        clients: ClientKind,
    ) -> Measuring<'a> {
        let requested = clock::nanos();
        observer.window_opened();
        let opened = clock::nanos();
        metrics.open(if clients == ClientKind::Tasks { requested..opened } else { opened..opened });
        let (began, started, cpu) = (clock::now(), clock::unix(), clients.cpu());
        Measuring { observer, metrics, total, clients, began, started, cpu }
    }

    /// Notifies the observer, and breaks if it interrupts.
    pub(crate) fn progress(&mut self, elapsed: Duration) -> ControlFlow<()> {
        self.metrics.collector.collect(|interval| self.observer.interval(interval));
        let responses = self.metrics.responses();
        self.observer.progress(Progress { elapsed, total: self.total, responses });
        check_interrupted(self.observer)
    }

    /// Closes the window; the clients send no further message.
    pub(crate) fn close(self, ended: ControlFlow<()>) -> Measured {
        let measured = Measured {
            started: self.started,
            length: clock::now() - self.began,
            cpu: self.clients.cpu() - self.cpu,
            interrupted: ended.is_break(),
        };
        self.metrics.set_phase(Phase::Over);
        self.observer.window_closed();
        measured
    }
}
