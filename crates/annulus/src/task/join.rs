//! Waiting for a task, or ending it.

use super::body::{Outcome, panic_message};
use super::raw::JoinRef;
use crate::unwind::Panic;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for a task's result. Dropping it detaches the task, which goes on; a panic of a detached task is reported by the panic hook
/// and ends only that task.
///
/// Awaiting it is cancel-safe: the result stays until it is taken.
pub struct JoinHandle<T> {
    /// `None` once aborted, or refused.
    task: Option<JoinRef<T>>,
}

impl<T> JoinHandle<T> {
    /// The handle of a task; of none, if it was not made because its runtime ends.
    pub(super) fn new(task: Option<JoinRef<T>>) -> Self {
        Self { task }
    }

    /// Ends the task: its future is dropped, on its own thread, before it would run again, and this handle gives
    /// [`JoinError::Aborted`] at once. If the task has finished, nothing happens.
    pub fn abort(&mut self) {
        if let Some(task) = self.task.take_if(|task| !task.join_state().is_done()) {
            task.join_state().detach();
            task.into_task().abort();
        }
    }

    /// Whether the task has finished or was aborted.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.join_state().is_done())
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &self.task else { return Poll::Ready(Err(JoinError::Aborted)) };
        task.join_state().poll(cx).map(|outcome| match outcome.and_then(Outcome::take) {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => Err(JoinError::Panicked(panic)),
            // A task that was not aborted is dropped by the end of its runtime only.
            None => Err(JoinError::Aborted),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.join_state().detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle(finished: {})", self.is_finished())
    }
}

/// Why a task has no result.
#[non_exhaustive]
pub enum JoinError {
    /// It was aborted, or its runtime ended first.
    Aborted,
    /// It panicked with this payload.
    Panicked(Panic),
}

impl JoinError {
    /// The panic, to resume it with [`std::panic::resume_unwind`].
    ///
    /// # Errors
    /// The error itself, if it is no panic.
    pub fn into_panic(self) -> Result<Panic, Self> {
        match self {
            Self::Panicked(panic) => Ok(panic),
            aborted => Err(aborted),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Panicked(panic) = self else { return f.write_str("the task was aborted") };
        write!(f, "the task panicked: {}", panic_message(panic))
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for JoinError {}
