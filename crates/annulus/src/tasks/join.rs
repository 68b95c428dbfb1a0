//! Handles that wait for a task or abort it, the task's id, its result, and the error if it has
//! none.

use super::raw::{JoinRef, TaskRef};
use crate::tasks::budget;
use crate::unwind::{Panic, dispose_each, wake_each};
use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::{fmt, io};

/// Waits for a task's result. Dropping the handle detaches the task, which continues to run. A
/// panic of a detached task is reported by the panic hook and ends only that task. In a simulation
/// (feature `sim`) it fails the run.
///
/// Awaiting the handle is cancel-safe: the result stays until it has been taken.
///
/// In a forked child, the tasks of the parent do not run: a handle from before the fork returns an
/// error that [is a cancellation](JoinError::is_cancelled), unless the task had finished.
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
    /// `None` if the task was refused because its runtime is ending.
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

    /// Returns true in a forked child, if the task is one of the parent's.
    pub(crate) fn is_in_forked_child(&self) -> bool {
        self.task.as_ref().is_some_and(JoinRef::is_in_forked_child)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &self.task else {
            return budget::poll_take(cx).map(|()| Err(JoinError::cancelled(Cancelled::Refused)));
        };
        budget::poll_with(cx, || match task.join_state().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(match outcome.and_then(Outcome::take) {
                Some(Ok(value)) => Ok(value),
                Some(Err(panic)) => Err(JoinError::panicked(panic)),
                None => Err(JoinError::cancelled(task.why_cancelled())),
            }),
            // Nothing would ever wake the caller.
            Poll::Pending if task.is_in_forked_child() => {
                Poll::Ready(Err(JoinError::cancelled(Cancelled::Forked)))
            }
            Poll::Pending => Poll::Pending,
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
    /// `None` if the task was refused because its runtime is ending.
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

/// The error of a task that was cancelled or panicked. The `?` operator converts it to an
/// [`io::Error`] of kind `Other`.
///
/// ```
/// annulus::run(async {
///     let error = annulus::spawn(async { panic!("on purpose") }).await.unwrap_err();
///     assert!(error.is_panic());
///     assert_eq!(error.to_string(), "the task panicked: on purpose");
///     assert_eq!(error.into_panic().downcast_ref(), Some(&"on purpose"));
/// });
/// ```
pub struct JoinError(JoinFailure);

enum JoinFailure {
    Cancelled(Cancelled),
    /// The payload is in a mutex only to make the error `Sync`.
    Panicked(Mutex<Panic>),
}

/// The reason why a task has no result.
#[derive(Clone, Copy)]
pub(crate) enum Cancelled {
    Aborted,
    RuntimeEnded,
    /// The handle has already returned the result.
    Taken,
    /// The task was spawned while its runtime was ending, or in a forked child.
    Refused,
    Forked,
}

impl Cancelled {
    fn text(self) -> &'static str {
        match self {
            Self::Aborted => "the task was aborted",
            Self::RuntimeEnded => "the runtime ended before the task",
            Self::Taken => "the result of the task has already been taken",
            Self::Refused => {
                "the task was spawned after the end of its runtime, or in a forked child"
            }
            Self::Forked => "the task belongs to the parent process, and does not run in this one",
        }
    }
}

impl JoinError {
    fn cancelled(why: Cancelled) -> Self {
        Self(JoinFailure::Cancelled(why))
    }

    pub(crate) fn panicked(payload: Panic) -> Self {
        Self(JoinFailure::Panicked(Mutex::new(payload)))
    }

    /// Returns true if the task was aborted, if its runtime ended first, if it does not run in this
    /// forked child, or if its result has already been taken. If the future panicked while it was
    /// being dropped, the error is a panic instead.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, JoinFailure::Cancelled(_))
    }

    /// Returns true if the task panicked.
    pub fn is_panic(&self) -> bool {
        !self.is_cancelled()
    }

    /// Returns the panic's payload, for example for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// If the task did not panic. Check [`is_panic`](Self::is_panic) first, or call
    /// [`try_into_panic`](Self::try_into_panic).
    #[track_caller]
    pub fn into_panic(self) -> Panic {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => {
                panic!(
                    "into_panic was called on an error that is not a panic ({error}); call try_into_panic"
                )
            }
        }
    }

    /// Like [`into_panic`](Self::into_panic), but returns an error instead of panicking.
    ///
    /// # Errors
    /// The error itself, if the task did not panic.
    pub fn try_into_panic(self) -> Result<Panic, Self> {
        match self.0 {
            JoinFailure::Panicked(payload) => {
                Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            JoinFailure::Cancelled(_) => Err(self),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            JoinFailure::Cancelled(why) => f.write_str(why.text()),
            JoinFailure::Panicked(payload) => {
                let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
                write!(f, "the task panicked: {}", panic_message(&payload))
            }
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}

/// The result of a task, for its join handle, or of a blocking call, for its future. It is locked
/// when the task is done and when the handle is used, but not for wakes.
///
/// In what follows, a blocking call is a task too, and its future is the join handle.
pub(crate) struct JoinState<T>(Mutex<JoinPhase<T>>);

enum JoinPhase<T> {
    /// The task is not done. Holds the waker of its join handle, if that has been polled.
    Live(Option<Waker>),
    /// The task is done, with or without a result.
    Done(Option<Outcome<T>>),
    /// The result has been taken.
    Taken,
    /// The join handle was dropped.
    Detached,
}

impl<T> JoinState<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(JoinPhase::Live(None)))
    }

    /// Records that the task is done. `None` means that its future was dropped, or that a blocking
    /// call was refused. Returns the outcome if there is no join handle.
    pub(crate) fn complete(&self, outcome: Option<Outcome<T>>) -> Option<Outcome<T>> {
        let mut phase = self.phase();
        let JoinPhase::Live(joiner) = &mut *phase else { return outcome };
        let joiner = joiner.take();
        *phase = JoinPhase::Done(outcome);
        drop(phase);
        wake_each(joiner);
        None
    }

    /// Returns the outcome once. The result is `None` if there is no outcome, or if it has been
    /// taken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Outcome<T>>> {
        let mut phase = self.phase();
        let stale = match &mut *phase {
            JoinPhase::Done(None) | JoinPhase::Taken => return Poll::Ready(None),
            JoinPhase::Done(outcome) => {
                let outcome = outcome.take();
                *phase = JoinPhase::Taken;
                return Poll::Ready(outcome);
            }
            JoinPhase::Live(Some(joiner)) if joiner.will_wake(cx.waker()) => None,
            JoinPhase::Live(joiner) => joiner.replace(cx.waker().clone()),
            JoinPhase::Detached => unreachable!("a dropped join handle cannot be polled"),
        };
        // Dropping a waker runs foreign code, so it must not happen under the lock. Cloning one
        // does too, but only a custom waker that uses this same handle could notice.
        drop(phase);
        dispose_each(stale);
        Poll::Pending
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(*self.phase(), JoinPhase::Done(_) | JoinPhase::Taken)
    }

    pub(crate) fn is_taken(&self) -> bool {
        matches!(*self.phase(), JoinPhase::Taken)
    }

    /// Records that the join handle has been dropped. Returns the outcome if it was not taken.
    pub(crate) fn detach(&self) -> Option<Outcome<T>> {
        let old = replace(&mut *self.phase(), JoinPhase::Detached);
        match old {
            JoinPhase::Live(joiner) => {
                dispose_each(joiner);
                None
            }
            JoinPhase::Done(outcome) => outcome,
            JoinPhase::Taken | JoinPhase::Detached => None,
        }
    }

    fn phase(&self) -> MutexGuard<'_, JoinPhase<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies a task. No other task in the process has the same id while the task, its
/// [`JoinHandle`] or an [`AbortHandle`] of it exists. Afterwards the id may be reused. The id is
/// the task's address in memory, so it costs nothing, and it differs between runs.
///
/// ```
/// annulus::run(async {
///     let task = annulus::spawn(async { annulus::task::id() });
///     let id = task.id();
///     assert_eq!(task.await.unwrap(), id);
///     assert_eq!(annulus::task::try_id(), None, "the root future is not a task");
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(usize);

impl Id {
    /// The id of a task that was refused because its runtime is ending. No task has this id.
    pub(crate) const NONE: Self = Self(0);

    pub(super) fn at(address: usize) -> Self {
        Self(address)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}

/// Returns the message of a panic, or a placeholder if the payload is not text.
pub(crate) fn panic_message(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with a payload that is not text")
}

/// The result of a task or a blocking call, or the payload of its panic. If dropping it panics,
/// that panic is caught.
pub(crate) struct Outcome<T>(Option<Result<T, Panic>>);

impl<T> Outcome<T> {
    pub(crate) fn new(outcome: Result<T, Panic>) -> Self {
        Self(Some(outcome))
    }

    pub(crate) fn panicked(panic: Panic) -> Self {
        Self(Some(Err(panic)))
    }

    pub(crate) fn take(mut self) -> Option<Result<T, Panic>> {
        self.0.take()
    }

    /// Returns the panic, if there was one. A result is dropped.
    pub(crate) fn into_panic(mut self) -> Option<Panic> {
        self.0.take_if(|outcome| outcome.is_err())?.err()
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        dispose_each(self.0.take());
    }
}
