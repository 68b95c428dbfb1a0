//! Durations of turns and polls.

use super::Histogram;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// Durations of turns and polls, and of the waits of woken tasks, as measured by a runtime that was
/// built with [`Builder::measure`](crate::Builder::measure) or
/// [`slow_poll`](crate::Builder::slow_poll).
///
/// With `measure`, the runtime reads the clock in the first two turns of every 100 ms, and the
/// histograms count only those turns. So a turn after a pause is counted, but only the first turns
/// of a burst are. With `slow_poll`, the runtime reads the clock in all turns.
///
/// ```
/// use annulus::{Runtime, stats::Timings};
/// use std::time::Duration;
///
/// let mut runtime = Runtime::builder().slow_poll(Duration::from_millis(10)).build()?;
/// runtime.block_on(async {
///     let blocking = annulus::spawn(async { std::thread::sleep(Duration::from_millis(20)) });
///     blocking.await.expect("no panic");
/// });
/// let timings: Timings = runtime.stats().and_then(|stats| stats.timings).expect("it is measured");
/// for slow in &timings.last_slow_polls {
///     // The task spawned at src/main.rs:6 held the loop for 20.1 ms.
///     eprintln!("{slow}");
/// }
/// assert!(timings.poll.percentile(100.0) >= Some(Duration::from_millis(20)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Timings {
    /// Time from the return of a system call that waits for events to the next such call: the time
    /// that further events had to wait.
    pub turn: Histogram,
    /// Duration of a poll of a task, or of the future that `block_on` runs: the time that it kept
    /// other tasks waiting.
    pub poll: Histogram,
    /// Time from the wake of a task to its poll, including the time that the loop took to deliver
    /// events. It counts from the last reading of the clock before the wake: the return from the
    /// kernel, or the start of the poll that woke the task.
    pub wake_to_poll: Histogram,
    /// Number of polls that took at least as long as [`slow_poll`](crate::Builder::slow_poll).
    pub slow_polls: u64,
    /// The last 16 slow polls, oldest first.
    pub last_slow_polls: Vec<SlowPoll>,
}

/// A poll that took at least as long as [`slow_poll`](crate::Builder::slow_poll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowPoll {
    /// The place that spawned the task; `None` for the future that `block_on` runs.
    pub spawned_at: Option<&'static Location<'static>>,
    /// Duration of the poll.
    pub took: Duration,
    /// When the poll ended, as time since the runtime was built, like
    /// [`Stats::uptime`](super::Stats::uptime).
    pub ended: Duration,
}

impl fmt::Display for SlowPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spawned_at {
            Some(place) => write!(f, "the task spawned at {}:{}", place.file(), place.line())?,
            None => f.write_str("the future of block_on")?,
        }
        write!(f, " held the loop for {:?}", self.took)
    }
}
