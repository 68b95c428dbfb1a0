//! The loop's reports of its polls, to measure them.

use std::panic::Location;

/// Is notified of each poll. The code that polls is generic over it, so that it costs nothing if nothing is measured.
pub(crate) trait Probe {
    /// The future that `block_on` runs, or the first of the ready tasks, is about to be polled.
    fn polls_begin(&self);

    /// The first task of the run queue is taken out, to be polled.
    fn task_taken(&self);

    /// A task was polled, spawned at this place; without one, the future that `block_on` runs.
    fn polled(&self, spawned_at: Option<&'static Location<'static>>);

    /// The ready tasks were polled.
    fn polls_end(&self);
}

/// Measures nothing.
pub(crate) struct Unmeasured;

impl Probe for Unmeasured {
    #[inline]
    fn polls_begin(&self) {}

    #[inline]
    fn task_taken(&self) {}

    #[inline]
    fn polled(&self, _: Option<&'static Location<'static>>) {}

    #[inline]
    fn polls_end(&self) {}
}
