//! Wait queues: tasks that wait for the same thing.
//!
//! A notification is a hint, not a reservation. A notified waiter *answers* when it is polled again
//! or dropped. The item that it was notified about stays available until a poll takes it. A future
//! can also be forgotten (`mem::forget`), and then it never answers. So that its notification is
//! not lost with it, every queue follows two rules:
//!
//! - **After each change, [`notify`](Waiters::notify) is called with the number of items that are
//!   available.** It ensures that this many waiters at the front of the line are notified. So an
//!   item that a notified waiter did not take goes to the next one.
//! - **While something stays available, code that is certain to run calls
//!   [`skip_notified`](Waiters::skip_notified), then `notify` again.** That removes waiters that
//!   have not answered from the line, so that the next ones are notified. In a runtime, a later
//!   turn of the loop does this ([`recheck`](Waiters::recheck)); in a channel, the receiver does.
//!
//! So a forgotten waiter delays the rest for a turn or two, or until the receiver checks again, but
//! blocks none of them. A waiter that was skipped because it is slow loses nothing: its number
//! keeps its position in the line.

use crate::tasks;
use std::collections::{HashSet, VecDeque};
use std::mem;
use std::task::{Context, Waker};

/// A waiter's number. The lowest is served first.
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
    /// With a future, which holds the number and leaves the line when it is dropped.
    InLine(&'a mut Option<WaiterId>),
    /// By calling a poll function. The queue cannot tell when the task stops waiting, so every
    /// notification wakes all polling tasks, in addition to the waiters in line.
    Polling,
    /// Like `Polling`, but only one task can wait at a time, because waiting takes exclusive
    /// access. So earlier wakers are stale.
    Alone,
}

impl Wait<'_> {
    /// Returns true if the task may be in line.
    #[inline]
    pub(crate) fn has_waited(&self) -> bool {
        matches!(self, Self::InLine(id) if id.is_some())
    }
}

/// A wait queue in order of arrival. It returns wakers instead of waking or dropping them, since
/// both run foreign code.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Waiters in order of their numbers.
    line: VecDeque<Waiter>,
    /// At least this many waiters at the front have been notified.
    notified: usize,
    next: u64,
    /// Tasks that wait without a future.
    pollers: Pollers,
    /// Whether the queue is on the list of queues to be checked again.
    listed: bool,
}

impl Waiters {
    /// Adds a waiting task with its waker. Replaced and stale wakers go to `drops`. If there are too
    /// many pollers, wakers that may be stale go to `wakes`.
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
            Wait::Polling => self.pollers.register(waker, wakes, drops),
            Wait::Alone => self.pollers.replace(waker, drops),
        }
    }

    /// Removes a task that no longer waits. Its waker goes to `drops`. If something is available,
    /// call [`notify`](Self::notify) next.
    #[inline]
    pub(crate) fn leave(&mut self, wait: Wait<'_>, drops: &mut Vec<Waker>) {
        if let Wait::InLine(id) = wait
            && let Some(waker) = self.remove(id)
        {
            drops.push(waker);
        }
    }

    /// Puts a waiter in line: at the end, or at the position that its number has. Returns the waker
    /// that was replaced.
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

    /// Like [`register`](Self::register), but with an owned waker.
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
        let index = self.ahead(Some(id));
        self.notified = self.notified.min(index);
        match self.line.get_mut(index) {
            Some(waiter) if waiter.id == id => waiter.waker.replace(waker),
            _ => {
                self.line.insert(index, Waiter { id, waker: Some(waker) });
                None
            }
        }
    }

    /// Removes a waiter from the line and returns its waker. If something is available, call
    /// [`notify`](Self::notify) next.
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
        let index = self.ahead(Some(id));
        if self.line.get(index)?.id != id {
            return None;
        }
        if index < self.notified {
            self.notified -= 1;
        }
        self.line.remove(index)?.waker
    }

    /// Returns the number of waiters in line that are served before this one. A waiter that has no
    /// number yet is served last.
    #[inline]
    pub(crate) fn ahead(&self, id: Option<WaiterId>) -> usize {
        id.map_or(self.line.len(), |id| self.line.partition_point(|waiter| waiter.id < id))
    }

    /// Ensures that the first `available` waiters in line are notified, and notifies all pollers if
    /// anything is available. Returns true if the caller must arrange a later
    /// [`recheck`](Self::recheck), because some waiters are not notified and no recheck is pending
    /// yet.
    #[inline]
    pub(crate) fn notify(&mut self, available: usize, wakes: &mut Vec<Waker>) -> bool {
        if available == 0 || !self.may_notify() {
            return false;
        }
        if self.line.len() != 1 || !self.pollers.is_empty() {
            return self.notify_several(available, wakes);
        }
        // The usual case: a single waiter.
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

    /// Notifies the next waiter that [`notify`](Self::notify) would notify, and returns its waker.
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

    /// Notifies all waiters. Those that have not answered the last notification leave the line.
    #[inline]
    pub(crate) fn notify_all(&mut self, wakes: &mut Vec<Waker>) {
        self.skip_notified();
        self.notify(usize::MAX, wakes);
    }

    /// Removes waiters from the front of the line that were notified and have not answered.
    #[inline]
    pub(crate) fn skip_notified(&mut self) {
        while self.line.front().is_some_and(|waiter| waiter.waker.is_none()) {
            self.line.pop_front();
        }
        self.notified = 0;
    }

    /// Returns true if a waiter in line has not been notified.
    #[inline]
    pub(crate) fn has_unnotified(&self) -> bool {
        self.line.iter().skip(self.notified).any(|waiter| waiter.waker.is_some())
    }

    /// Records that this queue is on the list of queues to be checked again. Returns false if it
    /// already was.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        !mem::replace(&mut self.listed, true)
    }

    /// Checks the queue again: if something is still available, waiters that have not answered
    /// leave the line.
    pub(crate) fn recheck(&mut self, available: usize) {
        self.listed = false;
        if available > 0 {
            self.skip_notified();
        }
    }

    /// Returns false if [`notify`](Self::notify) would do nothing, whatever is available.
    #[inline]
    pub(crate) fn may_notify(&self) -> bool {
        self.notified < self.line.len() || !self.pollers.is_empty()
    }

    /// Returns true if there are no waiters and no pollers.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.pollers.is_empty()
    }

    /// Returns the number of waiters and pollers.
    pub(crate) fn len(&self) -> usize {
        self.line.len() + self.pollers.wakers.len()
    }

    /// Returns the wakers of all waiters that have not been notified.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        let line = self.line.iter().filter_map(|waiter| waiter.waker.as_ref());
        line.chain(self.pollers.wakers())
    }
}

/// Stores a waker, unless the stored one wakes the same task. Returns the waker that it replaced.
pub(crate) fn renew(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(here) if here.will_wake(waker) => None,
        _ => slot.replace(waker.clone()),
    }
}

/// The initial limit on the number of wakers in [`Pollers`].
const INITIAL_MAX_WAKERS: usize = 64;
/// How many of the newest wakers a polling task's waker is compared with, so that it is not added
/// again.
const RECENT_WAKERS: usize = 8;

/// The wakers of tasks that have polled since the last notification. The list cannot tell when a
/// task stops waiting, so a notification wakes all of them, once. Until then, the list holds at most
/// twice as many wakers as there are tasks that have polled and are not done, but at least 64.
#[derive(Debug)]
pub(super) struct Pollers {
    wakers: Vec<Waker>,
    limit: usize,
}

impl Default for Pollers {
    fn default() -> Self {
        Self { wakers: Vec::new(), limit: INITIAL_MAX_WAKERS }
    }
}

impl Pollers {
    /// Adds a waker, after removing stale ones if the list is at its limit.
    #[inline]
    pub(super) fn register(
        &mut self,
        waker: &Waker,
        wakes: &mut Vec<Waker>,
        drops: &mut Vec<Waker>,
    ) {
        if self.wakers.iter().rev().take(RECENT_WAKERS).any(|known| known.will_wake(waker)) {
            return;
        }
        if self.wakers.len() >= self.limit {
            self.remove_stale(wakes, drops);
        }
        self.wakers.push(waker.clone());
    }

    /// Removes repeated wakers and those of tasks that are done. Other wakers, such as those of a
    /// `FuturesUnordered`, do not tell whether anything still waits. They are woken, and what still
    /// waits polls again. The new limit leaves space for as many again, so this is rare however
    /// many tasks wait.
    #[cold]
    fn remove_stale(&mut self, wakes: &mut Vec<Waker>, drops: &mut Vec<Waker>) {
        let (mut tasks, mut others) = (HashSet::new(), 0);
        for waker in mem::take(&mut self.wakers) {
            match tasks::is_done(&waker) {
                Some(false) if tasks.insert(waker.data()) => self.wakers.push(waker),
                Some(_) => drops.push(waker),
                None => {
                    others += 1;
                    wakes.push(waker);
                }
            }
        }
        self.limit = (2 * (self.wakers.len() + others)).max(INITIAL_MAX_WAKERS);
    }

    /// Adds a waker in place of all others, which go to `drops`.
    pub(super) fn replace(&mut self, waker: &Waker, drops: &mut Vec<Waker>) {
        if !matches!(&self.wakers[..], [known] if known.will_wake(waker)) {
            drops.append(&mut self.wakers);
            self.wakers.push(waker.clone());
        }
    }

    #[inline]
    pub(super) fn notify(&mut self, wakes: &mut Vec<Waker>) {
        if !self.wakers.is_empty() {
            wakes.append(&mut self.wakers);
            self.limit = INITIAL_MAX_WAKERS;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    pub(super) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.wakers.iter()
    }
}

/// Stores the waker of the polling task. The previous waker goes to `drops`, to be dropped outside
/// the borrow.
#[inline]
pub(crate) fn note_waker(place: &mut Option<Waker>, drops: &mut Vec<Waker>, cx: &Context<'_>) {
    if place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        return;
    }
    drops.extend(place.replace(cx.waker().clone()));
}

/// A single permit, such as for the use of a file's cursor, and the tasks that wait for it. A free
/// permit is reserved for the first task in line.
#[derive(Default)]
pub(crate) struct PermitQueue {
    taken: bool,
    waiters: Waiters,
}

impl PermitQueue {
    /// Returns true if a task has the permit or is in line for it.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken || self.waiters.ahead(None) > 0
    }

    /// Takes the permit, or joins the line. Returns true if the permit was taken. In both cases,
    /// the caller drops the waker that is left in `waker`, if any.
    pub(crate) fn poll(&mut self, id: &mut Option<WaiterId>, waker: &mut Option<Waker>) -> bool {
        if !self.taken && self.waiters.ahead(*id) == 0 {
            *waker = self.waiters.remove(id);
            self.taken = true;
            return true;
        }
        if let Some(new) = waker.take() {
            *waker = self.waiters.register_owned(id, new);
        }
        false
    }

    pub(crate) fn give_back(&mut self) {
        self.taken = false;
    }

    /// Leaves the line. The caller drops the returned waker.
    pub(crate) fn leave(&mut self, id: &mut Option<WaiterId>) -> Option<Waker> {
        self.waiters.remove(id)
    }

    /// Returns the waker of the first task in line, if the permit is free and the task has not been
    /// notified yet.
    pub(crate) fn notify_next(&mut self) -> Option<Waker> {
        self.waiters.notify_next(usize::from(!self.taken))
    }

    /// Returns true if the line must be checked again later, because the permit is free and the
    /// first task in line has not taken it. Returns true only once until
    /// [`recheck`](Self::recheck).
    pub(crate) fn needs_recheck(&mut self) -> bool {
        !self.taken && self.waiters.ahead(None) > 0 && self.waiters.list()
    }

    pub(crate) fn recheck(&mut self) {
        self.waiters.recheck(usize::from(!self.taken));
    }
}
