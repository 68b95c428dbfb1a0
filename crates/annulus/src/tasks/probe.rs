//! Hooks for measuring the polls of the loop.

use std::panic::Location;

/// Is notified of each poll. The polling code is generic over it, so it costs nothing in turns that
/// are not timed.
pub(crate) trait Probe {
    /// Called before the root future or the first ready task is polled.
    #[inline]
    fn polls_begin(&self) {}

    /// Called when the next task has been taken out of the run queue to be polled.
    #[inline]
    fn task_taken(&self) {}

    /// Called after a poll, with the location that spawned the task, or `None` for the root future.
    #[inline]
    fn polled(&self, _spawned_at: Option<&'static Location<'static>>) {}

    /// Called after the ready tasks have been polled.
    #[inline]
    fn polls_end(&self) {}
}

/// A probe that measures nothing.
pub(crate) struct Unmeasured;

impl Probe for Unmeasured {}
