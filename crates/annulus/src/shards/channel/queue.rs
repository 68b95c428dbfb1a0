//! A channel's values, and the tasks that wait to send or to receive.
//!
//! One lock, held briefly. Waking or dropping a waker and dropping a value run foreign code: never under the lock, and through
//! `unwind`. A waker is cloned under it: a clone of the program's own must not touch the channel.
//!
//! Senders that wait are served in order. The first of them, as many as there is room for, may send, and were woken: by the receive
//! that made room, or when a sender ahead of them left the queue. A sender that was woken and does not poll, because its future was
//! forgotten, keeps its room until the receiver has taken all values. The receiver then polls once more, and from then on skips
//! senders that do not poll, until one sends or all were woken (see `waiters`).
//!
//! The parent module supplies the lock and `unwind`: `tests/channel_queue.rs` replaces the lock with loom's, and tries every order.

use super::sync::{Mutex, MutexGuard};
use super::unwind::{dispose_each, wake_each};
use crate::waiters::{WaiterId, Waiters, renew};
use std::collections::VecDeque;
use std::mem;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

pub(crate) struct ChannelQueue<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    values: VecDeque<T>,
    /// The most values that wait for the receiver: one at least.
    capacity: usize,
    /// The waker of the receiver, while it waits.
    receiver: Option<Waker>,
    /// The senders that wait.
    waiting: Waiters,
    /// The receiver found no value, and none was sent since.
    was_empty: bool,
    /// Senders that are left: without one, the channel ends after its last value.
    senders: usize,
    /// The receiver was dropped.
    closed: bool,
}

impl<T> ChannelQueue<T> {
    /// A channel with one sender.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
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

    /// Takes the value if there is more room than for the senders that wait.
    pub(crate) fn push(&self, value: &mut Option<T>) -> bool {
        let state = self.lock();
        if state.closed || !state.may_push(None) {
            return false;
        }
        self.push_and_wake(state, value);
        true
    }

    /// Takes the value, or leaves it if the receiver was dropped. `id` names the caller's waiter, which [`leave`](Self::leave)
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

    fn push_and_wake(&self, mut state: MutexGuard<'_, State<T>>, value: &mut Option<T>) {
        state.values.extend(value.take());
        state.was_empty = false;
        let receiver = state.receiver.take();
        self.unlock_and_wake(state, receiver);
    }

    /// Removes a waiter.
    pub(crate) fn leave(&self, id: &mut Option<WaiterId>) {
        let mut state = self.lock();
        let waker = state.waiting.remove(id);
        self.unlock_and_wake(state, None);
        dispose_each(waker);
    }

    /// The next value, if there is one.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        if state.values.is_empty() {
            state.poll_again();
        }
        self.pop_and_wake(state)
    }

    /// The next value; `None` once there are neither values nor senders.
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

    fn pop_and_wake(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let value = state.values.pop_front();
        self.unlock_and_wake(state, None);
        value
    }

    /// Wakes the receiver if its waker is given, and as many senders as there is room for, usually at most one.
    fn unlock_and_wake(&self, mut state: MutexGuard<'_, State<T>>, receiver: Option<Waker>) {
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

    /// The receiver was dropped: nothing can be sent any more, and the values are dropped.
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

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent between any two steps that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.values.len())
    }

    /// Whether there is room for a sender and all senders before it.
    fn may_push(&self, id: Option<WaiterId>) -> bool {
        self.waiting.ahead(id) < self.room()
    }

    /// A sender that there is room for and that was not woken yet.
    fn next_sender(&mut self) -> Option<Waker> {
        self.waiting.notify_next(self.room())
    }

    /// The receiver found no value, though senders may wait. Senders that were woken have until its next poll to send; then they are
    /// skipped, and the next ones are woken. True while it has to poll again.
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
