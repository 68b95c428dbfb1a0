//! The values on their way, and who waits.
//!
//! One lock, held for moments. No waker is woken or dropped under it, nor a value dropped: that runs foreign code, and goes
//! through `unwind`.
//!
//! Senders that wait stand in line. Only its head may take room, and it is always woken when there is some: by the receive
//! that made it, by the head before it where some was left, or by one that gave its place up.
//!
//! Lock and `unwind` are the parent's: `tests/channel_line.rs` puts loom's lock in its place, and tries every order.

use super::sync::{Mutex, MutexGuard};
use super::unwind::{dispose_each, wake_each};
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
    waiting: VecDeque<Waiting>,
    next_ticket: u64,
    senders: usize,
    /// The receiver is gone.
    closed: bool,
}

/// A sender in line.
struct Waiting {
    ticket: u64,
    /// `None` once woken.
    waker: Option<Waker>,
}

impl<T> Line<T> {
    /// With one sender.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                values: VecDeque::new(),
                capacity: capacity.max(1),
                receiver: None,
                waiting: VecDeque::new(),
                next_ticket: 0,
                senders: 1,
                closed: false,
            }),
        }
    }

    /// Takes the value if there is room and nobody waits.
    pub(crate) fn push(&self, value: &mut Option<T>) -> bool {
        let state = self.lock();
        if state.closed || !state.may_push(None) {
            return false;
        }
        self.push_and_wake(state, value);
        true
    }

    /// Takes the value, or leaves it where the receiver is gone. `ticket` is the caller's place in line, to be given up by
    /// [`leave`](Self::leave).
    pub(crate) fn poll_push(
        &self,
        value: &mut Option<T>,
        ticket: &mut Option<u64>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(());
        }
        if !state.may_push(*ticket) {
            let stale = state.stand_in_line(ticket, cx.waker());
            drop(state);
            dispose_each(stale);
            return Poll::Pending;
        }
        let place = ticket.take().map(|_| state.waiting.pop_front());
        self.push_and_wake(state, value);
        drop(place);
        Poll::Ready(())
    }

    fn push_and_wake(&self, mut state: MutexGuard<'_, State<T>>, value: &mut Option<T>) {
        state.values.extend(value.take());
        let wakers = [state.receiver.take(), state.head()];
        drop(state);
        wake_each(wakers.into_iter().flatten());
    }

    /// Gives a place in line up.
    pub(crate) fn leave(&self, ticket: u64) {
        let mut state = self.lock();
        let place = state.waiting.iter().position(|waiting| waiting.ticket == ticket);
        let left = place.and_then(|place| state.waiting.remove(place));
        let head = state.head();
        drop(state);
        dispose_each(left);
        wake_each(head);
    }

    /// The next value, if there is one.
    pub(crate) fn pop(&self) -> Option<T> {
        self.pop_and_wake(self.lock())
    }

    /// The next value; `None` where there are no senders any more.
    pub(crate) fn poll_pop(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.lock();
        if !state.values.is_empty() || state.senders == 0 {
            return Poll::Ready(self.pop_and_wake(state));
        }
        let stale = renew(&mut state.receiver, cx.waker());
        drop(state);
        dispose_each(stale);
        Poll::Pending
    }

    fn pop_and_wake(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let value = state.values.pop_front();
        let head = state.head();
        drop(state);
        wake_each(head);
        value
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
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        wake_each(waiting.into_iter().filter_map(|waiting| waiting.waker));
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
    fn has_room(&self) -> bool {
        self.values.len() < self.capacity
    }

    /// Whether there is room for the holder of this ticket, or for one without where nobody waits.
    fn may_push(&self, ticket: Option<u64>) -> bool {
        self.has_room() && self.waiting.front().map(|head| head.ticket) == ticket
    }

    /// Returns what waker it had there before.
    fn stand_in_line(&mut self, ticket: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        if let Some(ticket) = ticket {
            let mut line = self.waiting.iter_mut();
            let mine = line.find(|waiting| waiting.ticket == *ticket);
            return mine.and_then(|waiting| renew(&mut waiting.waker, waker));
        }
        *ticket = Some(self.next_ticket);
        let waiting = Waiting { ticket: self.next_ticket, waker: Some(waker.clone()) };
        self.waiting.push_back(waiting);
        self.next_ticket += 1;
        None
    }

    /// The waker of the line's head, where there is room for it.
    fn head(&mut self) -> Option<Waker> {
        if !self.has_room() {
            return None;
        }
        self.waiting.front_mut().and_then(|head| head.waker.take())
    }
}

/// Puts a waker in a place, unless it would wake the same; returns the one it replaced.
fn renew(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match place {
        Some(here) if here.will_wake(waker) => None,
        _ => place.replace(waker.clone()),
    }
}
