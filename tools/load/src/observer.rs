//! Observers of a run while it lasts.

use crate::recording::Interval;
use std::time::Duration;

/// Notified of the course of a run, on the thread that called [`run`](crate::run).
pub trait Observer {
    /// Measuring starts when this returns. The time it takes is part of no latency.
    fn window_opened(&mut self) {}
    /// Measuring has just ended.
    fn window_closed(&mut self) {}
    /// About ten times a second while measuring.
    fn progress(&mut self, _progress: Progress) {}
    /// An interval of the run is complete: its requests and replies are counted. Called in order, while measuring and
    /// shortly afterwards.
    fn interval(&mut self, _interval: &Interval) {}
    /// Whether to end the run now, with the figures so far; called about ten times a second.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
impl Observer for () {}

/// How far measuring has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measured time so far.
    pub elapsed: Duration,
    /// Measured time in total.
    pub total: Duration,
    /// Responses so far.
    pub responses: u64,
}
