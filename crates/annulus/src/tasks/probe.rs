//! The loop's reports of its polls, to measure them.

use std::panic::Location;

/// Is notified of each poll. The code that polls is generic over it, so that it costs nothing in a turn that is not timed.
pub(crate) trait Probe {
    /// The future that `block_on` runs, or the first of the ready tasks, is about to be polled.
    #[inline]
    fn polls_begin(&self) {}

    /// The first task of the run queue is taken out, to be polled.
    #[inline]
    fn task_taken(&self) {}

    /// A task was polled, spawned at this place; without one, the future that `block_on` runs.
    #[inline]
    fn polled(&self, _spawned_at: Option<&'static Location<'static>>) {}

    /// The ready tasks were polled.
    #[inline]
    fn polls_end(&self) {}
}

/// Measures nothing.
pub(crate) struct Unmeasured;

impl Probe for Unmeasured {}
