//! Waiting for a task, or ending it.

use super::body::Outcome;
use super::id::Id;
use super::join_error::JoinError;
use super::raw::{JoinRef, TaskRef};
use crate::base::budget;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for a task's result. Dropping it detaches the task, which goes on; a panic of a detached task is reported by the panic hook
/// and ends only that task. In a simulation (feature `sim`) it fails the run.
///
/// Awaiting it is cancel-safe: the result stays until it is taken.
///
/// ```
/// annulus::run(async {
///     let task = annulus::spawn(async { 6 * 7 });
///     assert_eq!(task.await.unwrap(), 42);
///
///     let endless = annulus::spawn(std::future::pending::<()>());
///     endless.abort();
///     assert!(endless.await.unwrap_err().is_cancelled());
/// });
/// ```
pub struct JoinHandle<T> {
    /// `None` if it was refused.
    task: Option<JoinRef<T>>,
}

impl<T> JoinHandle<T> {
    /// The handle of a task; of none, if it was not made because its runtime ends.
    pub(crate) fn new(task: Option<JoinRef<T>>) -> Self {
        Self { task }
    }

    /// Ends the task: its future is dropped, on its own thread, before it would run again. Then this handle gives an error that
    /// [is a cancellation](JoinError::is_cancelled). If the task finishes first, its result stays; if it has, nothing happens.
    pub fn abort(&self) {
        if !self.is_finished() {
            self.abort_handle().abort();
        }
    }

    /// The task's id; of one that was refused, since its runtime ends, that of no task.
    pub fn id(&self) -> Id {
        self.task.as_ref().map_or(Id::NONE, JoinRef::id)
    }

    /// A handle that aborts the task, and does not wait for it.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.task.as_ref().map(JoinRef::task))
    }

    /// Whether the task has finished, or was aborted and its future is dropped.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.join_state().is_done())
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &self.task else {
            return budget::poll_take(cx).map(|()| Err(JoinError::cancelled()));
        };
        budget::poll_with(cx, || task.join_state().poll(cx)).map(|outcome| {
            match outcome.and_then(Outcome::take) {
                Some(Ok(value)) => Ok(value),
                Some(Err(panic)) => Err(JoinError::panicked(panic)),
                // The future was dropped before it was ready.
                None => Err(JoinError::cancelled()),
            }
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle(finished: {})", self.is_finished())
    }
}

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
