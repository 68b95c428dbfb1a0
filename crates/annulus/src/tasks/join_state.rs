//! The result of a task, for its join handle. It is locked once when the task is done and once when
//! it is joined, but not for wakes.

use super::body::Outcome;
use crate::unwind::{dispose_each, wake_each};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) struct JoinState<T>(Mutex<JoinPhase<T>>);

enum JoinPhase<T> {
    /// The task is not done. Holds the waker of its join handle, if that has been polled.
    Live(Option<Waker>),
    /// The task is done, with or without a result.
    Done(Option<Outcome<T>>),
    /// The join handle was dropped.
    Detached,
}

impl<T> JoinState<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(JoinPhase::Live(None)))
    }

    /// Records that the task is done. `None` means that its future was dropped. Returns the outcome
    /// if there is no join handle.
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
            JoinPhase::Done(outcome) => return Poll::Ready(outcome.take()),
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
        matches!(*self.phase(), JoinPhase::Done(_))
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
            JoinPhase::Detached => None,
        }
    }

    fn phase(&self) -> MutexGuard<'_, JoinPhase<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
