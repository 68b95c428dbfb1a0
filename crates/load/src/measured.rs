//! The measured window: opened, watched, closed.

use crate::board::{Board, Phase};
use crate::clock;
use crate::run::{Observer, Progress};
use std::time::Duration;

/// The measured time, and what it cost the load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
}

/// A window that is open.
pub(crate) struct Measuring<'a> {
    observer: &'a mut dyn Observer,
    board: &'a Board,
    total: Duration,
    cpu_clock: fn() -> Duration,
    began: Duration,
    cpu: Duration,
}

impl<'a> Measuring<'a> {
    /// Opens the window; `cpu_clock` counts what the load uses.
    pub(crate) fn open(
        observer: &'a mut dyn Observer,
        board: &'a Board,
        total: Duration,
        cpu_clock: fn() -> Duration,
    ) -> Measuring<'a> {
        observer.window_opened();
        board.enter(Phase::Measuring);
        let (began, cpu) = (clock::now(), cpu_clock());
        Measuring { observer, board, total, cpu_clock, began, cpu }
    }

    /// Tells the observer how far it has come.
    pub(crate) fn progress(&mut self, elapsed: Duration) {
        let responses = self.board.responses();
        self.observer.progress(Progress { elapsed, total: self.total, responses });
    }

    /// Closes the window; the clients send nothing more.
    pub(crate) fn close(self) -> Measured {
        let measured =
            Measured { length: clock::now() - self.began, cpu: (self.cpu_clock)() - self.cpu };
        self.board.enter(Phase::Over);
        self.observer.window_closed();
        measured
    }
}
