//! Handles that wait for a task or abort it.

use super::body::Outcome;
use super::id::Id;
use super::join_error::JoinError;
use super::raw::{JoinRef, TaskRef};
use crate::tasks::budget;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for a task's result. Dropping the handle detaches the task, which continues to run. A
/// panic of a detached task is reported by the panic hook and ends only that task. In a simulation
/// (feature `sim`) it fails the run.
///
/// Awaiting the handle is cancel-safe: the result stays until it has been taken.
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
    /// `None` if the task was refused.
    task: Option<JoinRef<T>>,
}

impl<T> JoinHandle<T> {
    /// Creates the handle of a task, or of no task if it was refused because its runtime is ending.
    pub(crate) fn new(task: Option<JoinRef<T>>) -> Self {
        Self { task }
    }

    /// Aborts the task: its future is dropped, on the task's own thread, before it would run again.
    /// This handle then returns an error that [is a cancellation](JoinError::is_cancelled). If the
    /// task finishes first, its result is kept. If it has already finished, nothing happens.
    pub fn abort(&self) {
        if !self.is_finished() {
            self.abort_handle().abort();
        }
    }

    /// Returns the task's id. If the task was refused because its runtime is ending, no other task
    /// has this id.
    pub fn id(&self) -> Id {
        self.task.as_ref().map_or(Id::NONE, JoinRef::id)
    }

    /// Returns a handle that can abort the task without waiting for it.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.task.as_ref().map(JoinRef::task))
    }

    /// Returns true if the task has finished, or has been aborted and its future dropped.
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

/// Aborts a task from any thread. It can be cloned, and keeps neither the task nor its runtime
/// running.
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

    /// Aborts the task: its future is dropped, on the task's own thread, before it would run again.
    /// If the task has already finished, nothing happens.
    pub fn abort(&self) {
        if let Some(task) = self.task.as_ref().filter(|task| !task.is_done()) {
            task.clone().abort();
        }
    }

    /// Returns the task's id. If the task was refused because its runtime is ending, no other task
    /// has this id.
    pub fn id(&self) -> Id {
        self.task.as_ref().map_or(Id::NONE, TaskRef::id)
    }

    /// Returns true if the task has finished, or has been aborted and its future dropped. On
    /// threads other than the task's own, it may become true a moment after the result is
    /// available.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(TaskRef::is_done)
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AbortHandle(finished: {})", self.is_finished())
    }
}
