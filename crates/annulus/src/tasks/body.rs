//! Polling and dropping a task's future, and catching its panics.

use crate::unwind::{Panic, dispose_each};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with a payload that is not text")
}

/// A task's result. If it is not taken, a panic while it is dropped is caught too.
pub(crate) struct Outcome<T>(Option<Result<T, Panic>>);

impl<T> Outcome<T> {
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

/// Polls a task's future, and drops it once it is ready or has panicked.
#[inline]
pub(crate) fn poll<F: Future>(
    mut slot: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<Outcome<F::Output>> {
    let future = slot.as_mut().as_pin_mut().expect("a finished task was polled");
    let outcome = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => Ok(ready!(poll)),
        Err(panic) => Err(panic),
    };
    dispose_each(end(slot));
    Poll::Ready(Outcome(Some(outcome)))
}

/// Drops a task's future. Returns the panic if the drop panics.
pub(crate) fn end<F>(mut slot: Pin<&mut Option<F>>) -> Option<Panic> {
    catch_unwind(AssertUnwindSafe(|| slot.set(None))).err()
}
