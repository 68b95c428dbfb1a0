//! A task's future, with what makes it end well: panics kept in, in its polls and in its drop.

use crate::unwind::{Panic, contained, dispose_each};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What a panic said.
pub(crate) fn words_of(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with something that is not text")
}

/// A task's result. Where nobody takes it, its drop's panic is kept in as well.
pub(super) struct Outcome<T>(Option<Result<T, Panic>>);

impl<T> Outcome<T> {
    pub(super) fn take(mut self) -> Option<Result<T, Panic>> {
        self.0.take()
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        dispose_each(self.0.take());
    }
}

/// Polls a task's future. Where it is ready, or has panicked, it is gone.
#[inline]
pub(super) fn poll<F: Future>(
    mut place: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<Outcome<F::Output>> {
    let future = place.as_mut().as_pin_mut().expect("a task that is over is not polled");
    let outcome = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => Ok(ready!(poll)),
        Err(panic) => Err(panic),
    };
    end(place);
    Poll::Ready(Outcome(Some(outcome)))
}

/// Drops a task's future.
pub(super) fn end<F>(mut place: Pin<&mut Option<F>>) {
    contained(|| place.set(None));
}
