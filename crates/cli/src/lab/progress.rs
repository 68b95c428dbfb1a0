//! The progress of a run of several comparisons, with the time left over all of them.

use crate::bench::run::RunLock;
use crate::duration;
use annulus_lab::bench::Observer;
use annulus_load::clock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// The progress of one comparison.
pub(super) struct Progress<'a> {
    lock: &'a RunLock,
    bar: ProgressBar,
    /// By the clock of the load.
    began: Duration,
    /// Slices that an earlier run has measured.
    known: usize,
    /// About how long the comparisons after this one take.
    later: Duration,
}

impl<'a> Progress<'a> {
    /// Of a comparison, which is this one of so many.
    pub(super) fn new(
        lock: &'a RunLock,
        (name, number, of): (&str, usize, usize),
        known: usize,
        later: Duration,
    ) -> Progress<'a> {
        // Hidden if standard error is no terminal, and drawn between slices only.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} {bar:30} slice {pos} of {len}, {msg}");
        let bar = bar.with_style(style.expect("a template that is a constant"));
        let bar = bar.with_prefix(format!("{name} ({number} of {of})"));
        Progress { lock, bar, began: clock::now(), known, later }
    }

    /// About how long the rest takes, by the time of a slice so far.
    fn left(&self, done: usize, planned: usize) -> Duration {
        let measured = done.saturating_sub(self.known).max(1);
        let slice = (clock::now() - self.began) / measured as u32;
        slice * planned.saturating_sub(done) as u32 + self.later
    }
}

impl Observer for Progress<'_> {
    fn progress(&mut self, done: usize, planned: usize) {
        self.bar.set_length(planned as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{} left", duration::shown(self.left(done, planned))));
    }

    fn is_stopped(&self) -> bool {
        self.lock.is_stopped()
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
