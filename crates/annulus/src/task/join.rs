//! Waiting for a task, or ending it.

use super::body::{Outcome, words_of};
use super::raw::Link;
use crate::unwind::Panic;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for a task's result. Dropping it detaches the task, which goes on; a panic that nobody waits for is told by the
/// panic hook and ends only that task.
///
/// Awaiting it is cancel-safe: the result stays until it is taken.
pub struct JoinHandle<T> {
    /// `None` once aborted, or refused.
    task: Option<Link<T>>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(task: Link<T>) -> Self {
        Self { task: Some(task) }
    }

    /// Waits for a task that was never made, because its runtime ends.
    pub(super) fn refused() -> Self {
        Self { task: None }
    }

    /// Ends the task: it is dropped, on its own thread, before it would run again, and its joiner gets
    /// [`JoinError::Aborted`] at once. Nothing happens where it has finished already.
    pub fn abort(&mut self) {
        if let Some(task) = self.task.take_if(|task| !task.joint().is_over()) {
            task.joint().detach();
            task.into_task().abort();
        }
    }

    /// Whether the result is there (or the task aborted).
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.joint().is_over())
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &self.task else { return Poll::Ready(Err(JoinError::Aborted)) };
        task.joint().poll(cx).map(|outcome| match outcome.and_then(Outcome::take) {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => Err(JoinError::Panicked(panic)),
            // Only the end of its runtime drops a task that nobody aborted.
            None => Err(JoinError::Aborted),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.joint().detach();
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
    /// It panicked, with this.
    Panicked(Panic),
}

impl JoinError {
    /// The panic, to resume it with [`std::panic::resume_unwind`]; the error itself where the task was aborted.
    ///
    /// # Errors
    /// The error itself, where it is no panic.
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
        write!(f, "the task panicked: {}", words_of(panic))
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for JoinError {}
