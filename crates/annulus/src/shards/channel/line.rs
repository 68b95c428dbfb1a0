//! The values on their way, and the tasks that wait.
//!
//! One lock, held briefly. No waker is woken or dropped under it, nor a value dropped: that runs foreign code, and goes through
//! `unwind`.
//!
//! Senders that wait stand in line. The first of them, as many as there is room for, may send, and are always woken: by the receive
//! that made the room, or when one that was ahead leaves the line. A sender that was woken and does not answer, because its future was
//! forgotten, keeps its room until the receiver has taken all values. It then asks once more, and from then on skips senders that do
//! not answer, until one sends or all were woken (see `waiters`).
//!
//! Lock and `unwind` are the parent's: `tests/channel_line.rs` puts loom's lock in its place, and tries every order.

use super::sync::{Mutex, MutexGuard};
use super::unwind::{dispose_each, wake_each};
use crate::waiters::{WaiterId, Waiters, renew};
use std::collections::VecDeque;
use std::mem;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

pub(crate) struct Line<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    values: VecDeque<T>,
    capacity: usize,
    /// The receiver, while it waits.
    receiver: Option<Waker>,
    /// Senders.
    waiting: Waiters,
    /// The receiver has found nothing, and nothing was sent since.
    was_empty: bool,
    senders: usize,
    /// The receiver is gone.
    closed: bool,
}

impl<T> Line<T> {
    /// With one sender.
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

    /// Takes the value if there is room that no waiting sender is to get.
    pub(crate) fn push(&self, value: &mut Option<T>) -> bool {
        let state = self.lock();
        if state.closed || !state.may_push(None) {
            return false;
        }
        self.push_and_wake(state, value);
        true
    }

    /// Takes the value, or leaves it if the receiver is gone. `id` is the caller's place in line, to be given up by
    /// [`leave`](Self::leave).
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

    /// Gives a place in line up.
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
            state.ask_again();
        }
        self.pop_and_wake(state)
    }

    /// The next value; `None` once there are no senders any more.
    pub(crate) fn poll_pop(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.lock();
        if !state.values.is_empty() || state.senders == 0 {
            return Poll::Ready(self.pop_and_wake(state));
        }
        let stale = renew(&mut state.receiver, cx.waker());
        let comes_back = state.ask_again();
        self.unlock_and_wake(state, None);
        dispose_each(stale);
        if comes_back {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn pop_and_wake(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let value = state.values.pop_front();
        self.unlock_and_wake(state, None);
        value
    }

    /// Wakes the receiver if its waker is given, and as many senders as there is room for: mostly one or none.
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

    /// The receiver is gone: nothing can be sent any more, and what was sent is dropped.
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
        // The state is whole between any two steps that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.values.len())
    }

    /// Whether there is room for a sender: beside that of those ahead of it in line.
    fn may_push(&self, id: Option<WaiterId>) -> bool {
        self.waiting.ahead(id) < self.room()
    }

    /// A sender that there is room for, and that was not woken for it yet.
    fn next_sender(&mut self) -> Option<Waker> {
        self.waiting.notify_next(self.room())
    }

    /// The receiver has found nothing, though there may be senders in line. Those that were woken get time until it asks again; then
    /// they are skipped, so that the next ones are woken. True as long as it has to ask again.
    fn ask_again(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        if mem::replace(&mut self.was_empty, true) {
            self.waiting.skip_notified();
        }
        !self.waiting.is_empty()
    }
}
