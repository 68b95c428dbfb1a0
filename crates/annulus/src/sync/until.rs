//! A wait queue for conditions: each time one may have come true, all waiters are notified and look for themselves.

use crate::base::budget;
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::{Wait, WaiterId, Waiters};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A wait queue whose waiters are all notified at once. Nothing of it is borrowed while foreign code runs: the wakes, clones and
/// drops of wakers.
#[derive(Default)]
pub(super) struct Queue(RefCell<Waiters>);

impl Queue {
    /// Wakes all that wait.
    pub(super) fn wake_all(&self) {
        let mut wakes = Vec::new();
        self.0.borrow_mut().notify_all(&mut wakes);
        wake_each(wakes);
    }

    /// Waits until `ready` holds, which may be at once. Whatever makes it hold calls [`wake_all`](Self::wake_all). Cancel-safe.
    pub(super) fn until<F: Fn() -> bool>(&self, ready: F) -> Until<'_, F> {
        Until { queue: self, ready, id: None }
    }

    /// As [`until`](Self::until), for a waiter whose number is kept elsewhere, and [leaves](Self::leave) the queue there.
    pub(super) fn poll_until(
        &self,
        ready: impl Fn() -> bool,
        id: &mut Option<WaiterId>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        if ready() {
            return budget::poll_take(cx);
        }
        let waker = cx.waker().clone();
        let stale = self.0.borrow_mut().register_owned(id, waker);
        dispose_each(stale);
        // The clone may have made it hold.
        if ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ends the wait of such a waiter.
    pub(super) fn leave(&self, id: &mut Option<WaiterId>) {
        let mut drops = Vec::new();
        self.0.borrow_mut().leave(Wait::InLine(id), &mut drops);
        dispose_each(drops);
    }
}

/// See [`Queue::until`].
pub(super) struct Until<'a, F> {
    queue: &'a Queue,
    ready: F,
    id: Option<WaiterId>,
}

// What it calls is never pinned.
impl<F> Unpin for Until<'_, F> {}

impl<F: Fn() -> bool> Future for Until<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { queue, ready, id } = &mut *self;
        queue.poll_until(&*ready, id, cx)
    }
}

impl<F> Drop for Until<'_, F> {
    fn drop(&mut self) {
        self.queue.leave(&mut self.id);
    }
}
