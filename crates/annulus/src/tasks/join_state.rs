//! The result of a task, for its join handle. Locked once when the task is done and once when it is joined, not for wakes.

use super::body::Outcome;
use crate::unwind::{dispose_each, wake_each};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) struct JoinState<T>(Mutex<State<T>>);

enum State<T> {
    /// The task is not done; the waker of its join handle, if that was polled.
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

    /// The task is done; without an outcome, its future was dropped. Returns the outcome if there is no join handle.
    pub(crate) fn complete(&self, outcome: Option<Outcome<T>>) -> Option<Outcome<T>> {
        let mut state = self.state();
        let State::Live(joiner) = &mut *state else { return outcome };
        let joiner = joiner.take();
        *state = State::Done(outcome);
        drop(state);
        wake_each(joiner);
        None
    }

    /// The outcome, once; `None` if there is none, or it was taken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Outcome<T>>> {
        let mut state = self.state();
        let stale = match &mut *state {
            State::Done(outcome) => return Poll::Ready(outcome.take()),
            State::Live(Some(joiner)) if joiner.will_wake(cx.waker()) => None,
            State::Live(joiner) => joiner.replace(cx.waker().clone()),
            State::Detached => unreachable!("a dropped handle is not polled"),
        };
        // The drop of a waker runs foreign code, so not under the lock. Its clone does too, but only a waker of the program's own that
        // touches this handle there could notice.
        drop(state);
        dispose_each(stale);
        Poll::Pending
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(*self.state(), State::Done(_))
    }

    /// The join handle is dropped. Returns the outcome that it has not taken.
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
