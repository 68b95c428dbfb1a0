//! Wait queues: tasks that wait for the same thing.
//!
//! A notification is a hint, never a reservation. A notified waiter *answers* by polling again or by being dropped; what it was
//! notified of stays available until a poll takes it. A future can also be forgotten (`mem::forget`), and then never answers. So
//! that nothing is lost with it, every queue here keeps two rules:
//!
//! - **After each change, [`notify`](Waiters::notify) is called with the number of things that are available.** It sees to it that
//!   this many of the first in line are notified. What a waiter was notified of and did not take thus reaches the next one.
//! - **While something stays available, a party that certainly runs calls [`skip_notified`](Waiters::skip_notified), then `notify`
//!   again.** That takes those that have not answered out of the line, so that the next ones are notified. In a runtime a later
//!   turn of the loop does it ([`recheck`](Waiters::recheck)), in a channel the receiver.
//!
//! What follows: a forgotten waiter delays others for a turn or two, or until the receiver asks again; it stops none. A waiter that was
//! skipped and is merely slow loses nothing: its number keeps its place in the order.

mod pollers;

use pollers::Pollers;
use std::collections::VecDeque;
use std::task::Waker;

/// The number of a waiter. A lower one is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(u64);

#[derive(Debug)]
struct Waiter {
    id: WaiterId,
    /// `None` once notified.
    waker: Option<Waker>,
}

/// How a task waits.
#[derive(Debug)]
pub(crate) enum Wait<'a> {
    /// With a future, which keeps the number and gives it up when it is dropped.
    InLine(&'a mut Option<WaiterId>),
    /// By calling a poll function, so that nothing tells when it loses interest. Every notification is for all of these, in
    /// addition to those in line.
    Polling,
}

impl Wait<'_> {
    /// It may be in line.
    #[inline]
    pub(crate) fn has_waited(&self) -> bool {
        matches!(self, Self::InLine(id) if id.is_some())
    }
}

/// A wait queue, in the order of arrival. It never wakes or drops a waker itself, since that runs foreign code: it hands them out.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// By their numbers.
    line: VecDeque<Waiter>,
    /// This many of the first are notified, at least.
    notified: usize,
    next: u64,
    /// Tasks that wait without a future.
    pollers: Pollers,
    /// On the list of those to be looked at again.
    listed: bool,
}

impl Waiters {
    /// Notes that a task waits, and how it is woken. A waker that this one replaces goes to `drops`.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        wait: Wait<'_>,
        waker: &Waker,
        wakes: &mut Vec<Waker>,
        drops: &mut Vec<Waker>,
    ) {
        match wait {
            Wait::InLine(id) => {
                if let Some(stale) = self.register(id, waker) {
                    drops.push(stale);
                }
            }
            Wait::Polling => self.pollers.register(waker, wakes),
        }
    }

    /// Notes that a task waits no more. Its waker goes to `drops`. Call [`notify`](Self::notify) next if something is available.
    #[inline]
    pub(crate) fn leave(&mut self, wait: Wait<'_>, drops: &mut Vec<Waker>) {
        if let Wait::InLine(id) = wait
            && let Some(waker) = self.remove(id)
        {
            drops.push(waker);
        }
    }

    /// Puts a waiter in line: at the end, or at the place that its number has. Returns the waker that this one replaces.
    #[inline]
    pub(crate) fn register(&mut self, id: &mut Option<WaiterId>, waker: &Waker) -> Option<Waker> {
        if id.is_some() { self.renew(id, waker) } else { self.register_owned(id, waker.clone()) }
    }

    #[cold]
    fn renew(&mut self, id: &mut Option<WaiterId>, waker: &Waker) -> Option<Waker> {
        let known = self.line.get(self.ahead(*id)).filter(|waiter| Some(waiter.id) == *id);
        let same = |known: &Waiter| known.waker.as_ref().is_some_and(|it| it.will_wake(waker));
        if known.is_some_and(same) { None } else { self.register_owned(id, waker.clone()) }
    }

    /// As [`register`](Self::register), with a waker of the waiter's own.
    #[inline]
    pub(crate) fn register_owned(
        &mut self,
        id: &mut Option<WaiterId>,
        waker: Waker,
    ) -> Option<Waker> {
        if let Some(id) = *id {
            return self.put_back(id, waker);
        }
        self.next += 1;
        let new = WaiterId(self.next);
        *id = Some(new);
        self.line.push_back(Waiter { id: new, waker: Some(waker) });
        None
    }

    #[cold]
    fn put_back(&mut self, id: WaiterId, waker: Waker) -> Option<Waker> {
        let place = self.ahead(Some(id));
        self.notified = self.notified.min(place);
        match self.line.get_mut(place) {
            Some(waiter) if waiter.id == id => waiter.waker.replace(waker),
            _ => {
                self.line.insert(place, Waiter { id, waker: Some(waker) });
                None
            }
        }
    }

    /// Takes a waiter out of the line. Returns its waker. Call [`notify`](Self::notify) next if something is available.
    #[inline]
    pub(crate) fn remove(&mut self, id: &mut Option<WaiterId>) -> Option<Waker> {
        let id = id.take()?;
        match self.line.front() {
            Some(front) if front.id == id => {
                self.notified = self.notified.saturating_sub(1);
                self.line.pop_front().and_then(|waiter| waiter.waker)
            }
            _ => self.remove_further(id),
        }
    }

    #[cold]
    fn remove_further(&mut self, id: WaiterId) -> Option<Waker> {
        let place = self.ahead(Some(id));
        if self.line.get(place)?.id != id {
            return None;
        }
        if place < self.notified {
            self.notified -= 1;
        }
        self.line.remove(place)?.waker
    }

    /// How many in line are served before this waiter; all of them if it is none yet.
    #[inline]
    pub(crate) fn ahead(&self, id: Option<WaiterId>) -> usize {
        id.map_or(self.line.len(), |id| self.line.partition_point(|waiter| waiter.id < id))
    }

    /// Sees to it that the first `available` in line are notified, and notifies all that poll if there is anything. True if this
    /// queue must be looked at again later ([`recheck`](Self::recheck)), since some are not notified; once until then.
    #[inline]
    pub(crate) fn notify(&mut self, available: usize, wakes: &mut Vec<Waker>) -> bool {
        if available == 0 || !self.may_notify() {
            return false;
        }
        if self.line.len() != 1 || !self.pollers.is_empty() {
            return self.notify_several(available, wakes);
        }
        // One that waits alone, as mostly.
        self.notified = 1;
        if let Some(waker) = self.line[0].waker.take() {
            wakes.push(waker);
        }
        false
    }

    #[cold]
    fn notify_several(&mut self, available: usize, wakes: &mut Vec<Waker>) -> bool {
        self.pollers.notify(wakes);
        while let Some(waker) = self.notify_next(available) {
            wakes.push(waker);
        }
        self.has_unnotified() && self.list()
    }

    /// One of those that [`notify`](Self::notify) would notify, if there is one.
    #[inline]
    pub(crate) fn notify_next(&mut self, available: usize) -> Option<Waker> {
        while self.notified < available.min(self.line.len()) {
            let waker = self.line[self.notified].waker.take();
            self.notified += 1;
            if waker.is_some() {
                return waker;
            }
        }
        None
    }

    /// Notifies all of them. Those that have not answered since the last time are skipped.
    #[inline]
    pub(crate) fn notify_all(&mut self, wakes: &mut Vec<Waker>) {
        self.skip_notified();
        self.notify(usize::MAX, wakes);
    }

    /// Takes the first ones out of the line, as far as they were notified and have not answered.
    #[inline]
    pub(crate) fn skip_notified(&mut self) {
        while self.line.front().is_some_and(|waiter| waiter.waker.is_none()) {
            self.line.pop_front();
        }
        self.notified = 0;
    }

    /// Whether some in line are not notified.
    #[inline]
    pub(crate) fn has_unnotified(&self) -> bool {
        self.line.iter().skip(self.notified).any(|waiter| waiter.waker.is_some())
    }

    /// Puts this queue on the list of those to be looked at again; false if it is there.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    /// Looked at again, with something still available: those that have not answered are skipped.
    pub(crate) fn recheck(&mut self, available: usize) {
        self.listed = false;
        if available > 0 {
            self.skip_notified();
        }
    }

    /// False if [`notify`](Self::notify) would do nothing, whatever is available.
    #[inline]
    pub(crate) fn may_notify(&self) -> bool {
        self.notified < self.line.len() || !self.pollers.is_empty()
    }

    /// Neither a waiter nor a poller is there.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.pollers.is_empty()
    }

    /// The wakers of all that wait and are not notified.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        let line = self.line.iter().filter_map(|waiter| waiter.waker.as_ref());
        line.chain(self.pollers.wakers())
    }

    /// Whether a task, known by its waker, waits here.
    pub(crate) fn include(&self, task: &Waker) -> bool {
        self.wakers().any(|waker| waker.will_wake(task))
    }
}

/// Puts a waker in a place, unless it would wake the same task; returns the one it replaced.
pub(crate) fn renew(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match place {
        Some(here) if here.will_wake(waker) => None,
        _ => place.replace(waker.clone()),
    }
}
