//! A waker for an event that several tasks wait for.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Wakes every task that has polled with it since the last wake: the halves of a stream may be in different tasks.
#[derive(Default)]
pub(super) struct SharedWaker(Mutex<Vec<Waker>>);

impl SharedWaker {
    /// Polls a future, which wakes this task and those that have polled before.
    pub(super) fn poll<F: Future + Unpin>(
        self: &Arc<Self>,
        future: &mut F,
        cx: &Context<'_>,
    ) -> Poll<F::Output> {
        // Before the poll, which may wake at once.
        self.add(cx.waker().clone());
        let waker = Waker::from(self.clone());
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    fn add(&self, waker: Waker) {
        let mut wakers = self.wakers();
        if !wakers.iter().any(|other| other.will_wake(&waker)) {
            wakers.push(waker);
        }
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for SharedWaker {
    fn wake(self: Arc<Self>) {
        let wakers = mem::take(&mut *self.wakers());
        wakers.into_iter().for_each(Waker::wake);
    }
}
