//! Ending a task without waiting for it.

use super::id::Id;
use super::raw::TaskRef;
use std::fmt;

/// Aborts a task, from any thread and any number of places. It keeps neither the task nor its runtime going.
///
/// ```
/// annulus::run(async {
///     let task = annulus::spawn(std::future::pending::<()>());
///     let aborts = task.abort_handle();
///     assert!(!aborts.is_finished());
///     aborts.abort();
///     assert!(task.await.unwrap_err().is_cancelled());
///     assert!(aborts.is_finished());
/// });
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    /// `None` if the task was refused.
    task: Option<TaskRef>,
}

impl AbortHandle {
    pub(crate) fn new(task: Option<TaskRef>) -> Self {
        Self { task }
    }

    /// Ends the task: its future is dropped, on its own thread, before it would run again. If the task has finished, nothing
    /// happens.
    pub fn abort(&self) {
        if let Some(task) = self.task.as_ref().filter(|task| !task.is_done()) {
            task.clone().abort();
        }
    }

    /// The task's id; of one that was refused, since its runtime ends, that of no task.
    pub fn id(&self) -> Id {
        self.task.as_ref().map_or(Id::NONE, TaskRef::id)
    }

    /// Whether the task has finished, or was aborted and its future is dropped. On another thread than the task's it may become true
    /// a moment after the task's result is there.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(TaskRef::is_done)
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AbortHandle(finished: {})", self.is_finished())
    }
}
