//! The values of a channel, and the tasks that wait to send or to receive.
//!
//! One lock protects everything, and is held briefly. Waking or dropping a waker and dropping a
//! value run foreign code, so they never happen under the lock, and go through `unwind`. Wakers are
//! cloned under the lock, so a custom waker's clone must not use the channel.
//!
//! Waiting senders are served in order. If there is room for n values, the first n of them may
//! send, and have been woken: by the receive that made room, or when a sender ahead of them left
//! the queue. A woken sender that does not poll, because its future was forgotten, keeps its room
//! until the receiver has taken all values. The receiver then polls again, and from then on skips
//! senders that do not poll, until one sends or all have been woken (see `waiters`).
//!
//! The parent module supplies the lock and `unwind`. `tests/channel_queue.rs` replaces the lock
//! with loom's, which tries every order of the threads' steps.

use super::sync::{Mutex, MutexGuard};
use super::unwind::{dispose_each, wake_each};
use crate::waiters::{WaiterId, Waiters, renew};
use std::collections::VecDeque;
use std::mem;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

pub(crate) struct ChannelQueue<T> {
    state: Mutex<QueueState<T>>,
}

struct QueueState<T> {
    values: VecDeque<T>,
    /// Maximum number of values that wait for the receiver; at least 1.
    capacity: usize,
    /// The waker of the receiver, while it waits.
    receiver: Option<Waker>,
    /// The waiting senders.
    waiting: Waiters,
    /// Whether the receiver has found no value, and none has been sent since.
    was_empty: bool,
    /// Number of senders that exist. At 0 the channel ends after its last value.
    senders: usize,
    /// Whether the receiver has been dropped.
    closed: bool,
}

impl<T> ChannelQueue<T> {
    /// Creates a channel with one sender.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(QueueState {
                values: VecDeque::new(),
                capacity: capacity.max(1),
                receiver: None,
                waiting: Waiters::default(),
                was_empty: false,
                senders: 1,
                closed: false,
            }),
        }
    }

    /// Takes the value if there is room for it in addition to the waiting senders.
    pub(crate) fn push(&self, value: &mut Option<T>) -> bool {
        let state = self.lock();
        if state.closed || !state.may_push(None) {
            return false;
        }
        self.push_and_wake(state, value);
        true
    }

    /// Takes the value once there is room. If the receiver has been dropped, returns `Ready` and
    /// leaves the value in place. `id` identifies the caller's waiter, which [`leave`](Self::leave)
    /// removes.
    pub(crate) fn poll_push(
        &self,
        value: &mut Option<T>,
        id: &mut Option<WaiterId>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(());
        }
        if !state.may_push(*id) {
            let stale = state.waiting.register(id, cx.waker());
            drop(state);
            dispose_each(stale);
            return Poll::Pending;
        }
        let waker = state.waiting.remove(id);
        self.push_and_wake(state, value);
        dispose_each(waker);
        Poll::Ready(())
    }

    fn push_and_wake(&self, mut state: MutexGuard<'_, QueueState<T>>, value: &mut Option<T>) {
        state.values.extend(value.take());
        state.was_empty = false;
        let receiver = state.receiver.take();
        self.unlock_and_wake(state, receiver);
    }

    /// Removes a waiter whose send was dropped, and wakes the senders that there is now room for.
    pub(crate) fn leave(&self, id: &mut Option<WaiterId>) {
        let mut state = self.lock();
        let waker = state.waiting.remove(id);
        self.unlock_and_wake(state, None);
        dispose_each(waker);
    }

    /// Returns the next value, or `Ready(None)` if there are neither values nor senders. Does not
    /// register the caller.
    pub(crate) fn try_pop(&self) -> Poll<Option<T>> {
        let mut state = self.lock();
        if !state.values.is_empty() || state.senders == 0 {
            return Poll::Ready(self.pop_and_wake(state));
        }
        state.poll_again();
        self.unlock_and_wake(state, None);
        Poll::Pending
    }

    /// Returns the next value, or `None` once there are neither values nor senders.
    pub(crate) fn poll_pop(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.lock();
        if !state.values.is_empty() || state.senders == 0 {
            return Poll::Ready(self.pop_and_wake(state));
        }
        let stale = renew(&mut state.receiver, cx.waker());
        let polls_again = state.poll_again();
        self.unlock_and_wake(state, None);
        dispose_each(stale);
        if polls_again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn pop_and_wake(&self, mut state: MutexGuard<'_, QueueState<T>>) -> Option<T> {
        let value = state.values.pop_front();
        self.unlock_and_wake(state, None);
        value
    }

    /// Wakes the receiver if its waker is given, and as many senders as there is room for; usually
    /// at most one.
    fn unlock_and_wake(&self, mut state: MutexGuard<'_, QueueState<T>>, receiver: Option<Waker>) {
        let mut sender = state.next_sender();
        drop(state);
        wake_each(receiver);
        while sender.is_some() {
            wake_each(sender);
            sender = self.lock().next_sender();
        }
    }

    pub(crate) fn add_sender(&self) {
        self.lock().senders += 1;
    }

    pub(crate) fn remove_sender(&self) {
        let mut state = self.lock();
        state.senders -= 1;
        let receiver = if state.senders == 0 { state.receiver.take() } else { None };
        drop(state);
        wake_each(receiver);
    }

    /// Closes the channel because the receiver has been dropped: sends fail from now on, and the
    /// values are dropped.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let (values, receiver) = (mem::take(&mut state.values), state.receiver.take());
        let mut senders = Vec::new();
        state.waiting.notify_all(&mut senders);
        drop(state);
        wake_each(senders);
        dispose_each(receiver);
        dispose_each(values);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        // Poisoning is ignored, because the state is consistent between any two steps that could
        // panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueState<T> {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.values.len())
    }

    /// Returns true if there is room for a sender and for all senders before it.
    fn may_push(&self, id: Option<WaiterId>) -> bool {
        self.waiting.ahead(id) < self.room()
    }

    /// Returns the waker of the next sender that there is room for and that has not been woken yet.
    fn next_sender(&mut self) -> Option<Waker> {
        self.waiting.notify_next(self.room())
    }

    /// Called when the receiver has found no value, although senders may be waiting. Woken senders
    /// have until the receiver's next poll to send; then they are skipped and the next ones are
    /// woken. Returns true if the receiver has to poll again.
    fn poll_again(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        if mem::replace(&mut self.was_empty, true) {
            self.waiting.skip_notified();
        }
        !self.waiting.is_empty()
    }
}
