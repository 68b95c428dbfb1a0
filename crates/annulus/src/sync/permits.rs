//! Permits, and the tasks that wait for them in line: what semaphores, locks and bounded channels are made of.

use crate::base::budget;
use crate::base::recheck::{Recheck, RecheckQueue};
use crate::runtime::current;
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::{WaiterId, Waiters};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// A number of permits. The first in line takes what it needs as soon as there is so much; none overtakes it.
pub(super) struct Permits(RefCell<State>);

struct State {
    available: usize,
    /// None is given any more.
    closed: bool,
    waiters: Waiters,
    /// How many the first in line needs, as far as it has said so.
    first_needs: usize,
}

/// Why there is none now.
pub(super) enum Refused {
    Closed,
    /// Too few are free, or others wait.
    TooFew,
}

impl Permits {
    pub(super) fn new(available: usize) -> Rc<Self> {
        let waiters = Waiters::default();
        Rc::new(Self(RefCell::new(State { available, closed: false, waiters, first_needs: 1 })))
    }

    pub(super) fn available(&self) -> usize {
        self.0.borrow().available
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.borrow().closed
    }

    /// Takes `count`, unless others wait.
    pub(super) fn try_take(&self, count: usize) -> Result<(), Refused> {
        let mut state = self.0.borrow_mut();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.waiters.ahead(None) > 0 || state.available < count {
            return Err(Refused::TooFew);
        }
        state.available -= count;
        Ok(())
    }

    /// Takes `count`, or waits in line; `id` is the place there, to be given up by [`leave`](Self::leave).
    ///
    /// # Errors
    /// Once closed.
    pub(super) fn poll_take(
        self: &Rc<Self>,
        count: usize,
        id: &mut Option<WaiterId>,
        cx: &Context<'_>,
    ) -> Poll<Result<(), ()>> {
        let mut state = self.0.borrow_mut();
        let first = state.waiters.ahead(*id) == 0;
        let may_take = count == 0 || first && state.available >= count;
        if !state.closed && !may_take {
            if first {
                state.first_needs = count;
            }
            drop(state);
            self.register(id, cx);
            // The clone of the waker, which is foreign code, may have given some.
            self.notify();
            return Poll::Pending;
        }
        // A waker is foreign code, which may come back here.
        drop(state);
        ready!(budget::poll_take(cx));
        let mut state = self.0.borrow_mut();
        let closed = state.closed;
        if !closed {
            state.available -= count;
        }
        let waker = state.remove(id, first);
        drop(state);
        dispose_each(waker);
        self.notify();
        Poll::Ready(if closed { Err(()) } else { Ok(()) })
    }

    /// The clone of a waker is foreign code, so nothing is borrowed during it.
    fn register(&self, id: &mut Option<WaiterId>, cx: &Context<'_>) {
        let waker = cx.waker().clone();
        let stale = self.0.borrow_mut().waiters.register_owned(id, waker);
        dispose_each(stale);
    }

    /// Gives up a place in line.
    pub(super) fn leave(self: &Rc<Self>, id: &mut Option<WaiterId>) {
        if id.is_none() {
            return;
        }
        let mut state = self.0.borrow_mut();
        let first = state.waiters.ahead(*id) == 0;
        let waker = state.remove(id, first);
        drop(state);
        dispose_each(waker);
        self.notify();
    }

    /// Adds permits.
    pub(super) fn give(self: &Rc<Self>, count: usize) {
        let mut state = self.0.borrow_mut();
        state.available = state.available.saturating_add(count);
        drop(state);
        self.notify();
    }

    /// Adds one, unless there are as many as tasks that wait, and one.
    pub(super) fn give_to_waiting(self: &Rc<Self>) {
        let mut state = self.0.borrow_mut();
        let useful = state.waiters.ahead(None).max(1);
        state.available = (state.available + 1).min(useful);
        drop(state);
        self.notify();
    }

    /// Wakes all that wait, without a permit: those that were given to them go.
    pub(super) fn wake_all(&self) {
        let mut wakes = Vec::new();
        let mut state = self.0.borrow_mut();
        state.available = state.available.saturating_sub(state.waiters.ahead(None));
        state.waiters.notify_all(&mut wakes);
        drop(state);
        wake_each(wakes);
    }

    /// Takes free permits away for good; returns how many.
    pub(super) fn remove(&self, count: usize) -> usize {
        let mut state = self.0.borrow_mut();
        let removed = count.min(state.available);
        state.available -= removed;
        removed
    }

    /// From here on all that wait are refused.
    pub(super) fn close(&self) {
        let mut state = self.0.borrow_mut();
        state.closed = true;
        let mut wakes = Vec::new();
        state.waiters.notify_all(&mut wakes);
        drop(state);
        wake_each(wakes);
    }

    /// Notifies the first in line if there is what it needs.
    fn notify(self: &Rc<Self>) {
        let mut state = self.0.borrow_mut();
        let waker = state.next();
        let look_again = state.needs_recheck();
        drop(state);
        wake_each(waker);
        if look_again {
            recheck_later(Rc::downgrade(self) as Weak<dyn RecheckQueue>);
        }
    }
}

/// Has a queue looked at again in the next turn of the thread's runtime. Outside one, futures that are forgotten keep their place.
fn recheck_later(queue: Weak<dyn RecheckQueue>) {
    if let Ok(core) = current::get()
        && let Ok(mut inner) = core.enter()
    {
        inner.io.rechecks.push(Recheck::Queue(queue));
    }
}

impl RecheckQueue for Permits {
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool {
        let mut state = self.0.borrow_mut();
        let ready = state.ready();
        state.waiters.recheck(ready);
        if ready > 0 {
            // The first may be another one now, which says what it needs when it is polled.
            state.first_needs = 1;
        }
        wakes.extend(state.next());
        state.needs_recheck()
    }
}

impl State {
    /// How many in line may be notified: the next one is notified when the first has taken what it needs.
    fn ready(&self) -> usize {
        usize::from(self.available >= self.first_needs.max(1))
    }

    fn next(&mut self) -> Option<Waker> {
        self.waiters.notify_next(self.ready())
    }

    /// True, once until it was done, if the first in line was notified and others wait behind it.
    fn needs_recheck(&mut self) -> bool {
        self.ready() > 0 && self.waiters.has_unnotified() && self.waiters.list()
    }

    fn remove(&mut self, id: &mut Option<WaiterId>, first: bool) -> Option<Waker> {
        if first {
            self.first_needs = 1;
        }
        self.waiters.remove(id)
    }
}
