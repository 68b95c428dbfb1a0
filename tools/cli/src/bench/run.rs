//! Running a bench: the lock that admits one run per machine, an orderly stop, and progress.

use crate::duration;
use crate::output::note;
use annulus_lab::bench::Observer;
use annulus_lab::interrupt;
use annulus_lab::lock::Lock;
use annulus_lab::peer::Peers;
use annulus_load::clock;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::env;
use std::time::Duration;

/// Printed at the first ctrl-C.
const STOPPING_NOTE: &str = "annulus: stopping; press ctrl-C again to stop at once";

/// Returns the peers in `tools/peers`, here or in a parent directory.
pub(crate) fn peers() -> Option<Peers> {
    let peers = env::current_dir().ok().and_then(|here| Peers::find(&here))?;
    Some(peers.announcing(|name| note(format_args!("annulus: building peer {name}"))))
}

/// Takes the machine's lock and installs the signal handlers.
pub(crate) fn take_lock() -> Result<Lock> {
    let lock = Lock::take()?;
    interrupt::install(|| note(STOPPING_NOTE)).context("cannot watch for ctrl-C")?;
    Ok(lock)
}

/// The progress bar of one comparison, with the time left for all comparisons of the run. It is
/// shown on a terminal only, and drawn only between slices.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// When this comparison started.
    began: Duration,
    /// The number of slices that an earlier run has measured.
    known: usize,
    /// The estimated time of the comparisons that follow.
    later: Duration,
    /// The current result of the cell that was measured last.
    answer: String,
}

impl Progress {
    pub(crate) fn new(title: String, known: usize, later: Duration) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} {bar:30} slice {pos} of {len}, {msg}");
        let bar =
            bar.with_style(style.expect("the constant template is invalid")).with_prefix(title);
        Progress { bar, began: clock::now(), known, later, answer: String::new() }
    }

    /// Estimates the remaining time of the run from the average time of a slice.
    fn left(&self, done: usize, planned: usize) -> Duration {
        let measured = done.saturating_sub(self.known).max(1);
        let slice = (clock::now() - self.began) / measured as u32;
        slice * planned.saturating_sub(done) as u32 + self.later
    }
}

impl Observer for Progress {
    fn progress(&mut self, done: usize, planned: usize) {
        self.bar.set_length(planned as u64);
        self.bar.set_position(done as u64);
        let left = duration::shown(self.left(done, planned));
        self.bar.set_message(format!("{left} left\n{}", self.answer));
    }

    fn answer(&mut self, so_far: String) {
        self.answer = so_far;
    }

    fn is_stopped(&self) -> bool {
        interrupt::status().is_some()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
