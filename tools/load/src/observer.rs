//! Observation of a run in progress.

#[cfg(doc)]
use crate::plan::Plan;
use crate::recording::Interval;
use std::time::Duration;

/// Receives notifications about a run, on the thread that called [`run`](fn@crate::run).
pub trait Observer {
    /// Called when every client is connected. The warm-up starts when this returns.
    fn connected(&mut self) {}
    /// Called before measuring, which starts when this returns. No latency includes the time this
    /// takes.
    fn window_opened(&mut self) {}
    /// Called at the end of each turn within the measured window ([`Plan::turns`]), when all clients
    /// have paused. They continue when this returns. Neither the window nor any latency includes the
    /// pause.
    fn paused(&mut self) {}
    /// Called when the clients have paused again, after the warm-up of a turn. Measuring continues
    /// when this returns.
    fn resumed(&mut self) {}
    /// Called when measuring has just ended.
    fn window_closed(&mut self) {}
    /// Called about every 100 ms while measuring.
    fn progress(&mut self, _progress: Progress) {}
    /// Called when an interval is complete. Intervals are passed in order, while measuring and
    /// shortly after.
    fn interval(&mut self, _interval: &Interval) {}
    /// Called about every 100 ms. Returns true to end the run now, with the figures measured so
    /// far.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
impl Observer for () {}

/// The progress of measuring.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measured time so far.
    pub elapsed: Duration,
    /// Planned measured time.
    pub total: Duration,
    /// Responses so far.
    pub responses: u64,
    /// Planned number of requests of this part of the run, if there is one.
    pub requests: Option<u64>,
}
