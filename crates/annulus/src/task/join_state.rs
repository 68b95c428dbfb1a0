//! Where a task's result waits for its joiner. Locked once when the task is over and once when it is joined: off the path
//! of wakes.

use super::body::Outcome;
use crate::unwind::{dispose, dispose_each, wake_each};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(super) struct Joint<T>(Mutex<State<T>>);

enum State<T> {
    /// The task goes on; its joiner, if one waits.
    Open(Option<Waker>),
    /// It is over, with or without a result.
    Over(Option<Outcome<T>>),
    /// Nobody wants the result.
    Detached,
}

impl<T> Joint<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Open(None)))
    }

    /// The task is over; without an outcome, it was dropped.
    pub(super) fn complete(&self, outcome: Option<Outcome<T>>) {
        let mut state = self.state();
        let State::Open(joiner) = &mut *state else { return };
        let joiner = joiner.take();
        *state = State::Over(outcome);
        drop(state);
        wake_each(joiner);
    }

    /// The outcome, once; `None` where there is none, or none any more.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Outcome<T>>> {
        let mut state = self.state();
        let stale = match &mut *state {
            State::Over(outcome) => return Poll::Ready(outcome.take()),
            State::Open(Some(joiner)) if joiner.will_wake(cx.waker()) => None,
            State::Open(joiner) => joiner.replace(cx.waker().clone()),
            State::Detached => unreachable!("who detaches does not join"),
        };
        // Dropping a waker runs foreign code.
        drop(state);
        dispose_each(stale);
        Poll::Pending
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(*self.state(), State::Over(_))
    }

    /// Nobody will join.
    pub(super) fn detach(&self) {
        let old = replace(&mut *self.state(), State::Detached);
        if let State::Open(Some(joiner)) = old {
            dispose(joiner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
