//! The result of a task, for its join handle. It is locked once when the task is done and once when
//! it is joined, but not for wakes.

use super::body::Outcome;
use crate::unwind::{dispose_each, wake_each};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) struct JoinState<T>(Mutex<State<T>>);

enum State<T> {
    /// The task is not done. Holds the waker of its join handle, if that has been polled.
    Live(Option<Waker>),
    /// The task is done, with or without a result.
    Done(Option<Outcome<T>>),
    /// The join handle was dropped.
    Detached,
}

impl<T> JoinState<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Live(None)))
    }

    /// Records that the task is done. `None` means that its future was dropped. Returns the outcome
    /// if there is no join handle.
    pub(crate) fn complete(&self, outcome: Option<Outcome<T>>) -> Option<Outcome<T>> {
        let mut state = self.state();
        let State::Live(joiner) = &mut *state else { return outcome };
        let joiner = joiner.take();
        *state = State::Done(outcome);
        drop(state);
        wake_each(joiner);
        None
    }

    /// Returns the outcome once. The result is `None` if there is no outcome, or if it has been
    /// taken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Outcome<T>>> {
        let mut state = self.state();
        let stale = match &mut *state {
            State::Done(outcome) => return Poll::Ready(outcome.take()),
            State::Live(Some(joiner)) if joiner.will_wake(cx.waker()) => None,
            State::Live(joiner) => joiner.replace(cx.waker().clone()),
            State::Detached => unreachable!("a dropped join handle cannot be polled"),
        };
        // Dropping a waker runs foreign code, so it must not happen under the lock. Cloning one
        // does too, but only a custom waker that uses this same handle could notice.
        drop(state);
        dispose_each(stale);
        Poll::Pending
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(*self.state(), State::Done(_))
    }

    /// Records that the join handle has been dropped. Returns the outcome if it was not taken.
    pub(crate) fn detach(&self) -> Option<Outcome<T>> {
        let old = replace(&mut *self.state(), State::Detached);
        match old {
            State::Live(joiner) => {
                dispose_each(joiner);
                None
            }
            State::Done(outcome) => outcome,
            State::Detached => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
