//! Listeners, and connections that were accepted but not yet claimed by `accept`.
//!
//! For the states, see [`Arming`]. Without a connection limit, an idle listener is armed with a
//! multishot accept, which runs until the kernel ends it. If [`MAX_UNCLAIMED_CONNECTIONS`]
//! connections wait to be claimed, the accept is cancelled, and the listener accepts one connection
//! at a time until all have been claimed. A listener that runs out of descriptors pauses before its
//! next accept.
//!
//! With a connection limit, a listener does nothing unless a task waits. Then it polls until the
//! backlog holds a connection, takes a permit, and accepts that one connection without waiting. It
//! takes the permit so late because a listener without clients would otherwise take it from other
//! listeners that share the limit. If the limit is reached, the listener stays idle, and its tasks
//! are woken when a connection closes.
#![allow(unsafe_code)]

use crate::bytes::chunk::DeferredDrops;
use crate::slots::Waits;
use crate::slots::arming::{Arming, ends_operation_only, is_shortage};
use crate::slots::connection_limit::{ConnectionLimit, LimitedListener, Permit};
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::slots::loop_state::Recheck;
use crate::timers::TimerAction;
use crate::waiters::{Wait, WaiterId, Waiters};
use annulus_driver::{Event, Op, OpKind, Slab, SlotId};
use annulus_kernel::{Fd, named, with_watch_limit};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

/// Maximum unclaimed connections per listener; further connections stay in the kernel's backlog. A
/// multishot accept takes the whole backlog before it can be cancelled, so a burst can exceed this
/// number.
const MAX_UNCLAIMED_CONNECTIONS: usize = 64;
/// Number of consecutive failed accepts after which the listener pauses. If a seccomp filter
/// forbids all accepts, immediate retries would never end.
const MAX_FAILED_ACCEPTS: u32 = 16;
/// Delay until a paused listener retries, unless this runtime closes a descriptor earlier.
const RETRY_DELAY: Duration = Duration::from_millis(50);

struct Listener {
    id: SlotId,
    fd: Fd,
    arming: Arming,
    /// Whether accepts have failed for lack of descriptors or memory, or too often. The listener
    /// retries once a descriptor has been closed, or after [`RETRY_DELAY`].
    is_paused: bool,
    unclaimed: VecDeque<Accepted>,
    /// Whether to accept one connection at a time, because too many were unclaimed.
    one_at_a_time: bool,
    error: Option<Errno>,
    /// Number of consecutive accepts that failed because of the connection that they took.
    failed: u32,
    waiters: Waiters,
    limited: Option<Box<LimitState>>,
    dropped: bool,
}

/// An accepted connection, with its permit if its listener has a limit.
pub(crate) struct Accepted {
    pub(crate) fd: Fd,
    pub(crate) permit: Option<Permit>,
}

#[derive(Default)]
pub(crate) struct Listeners {
    slots: Slab<Listener>,
    /// Number of listeners with `is_paused` set.
    paused: usize,
}

impl Listeners {
    pub(crate) fn add(&mut self, fd: Fd, limit: Option<ConnectionLimit>) -> u32 {
        self.slots.insert_with(|id| Listener {
            id,
            fd,
            arming: Arming::Idle,
            is_paused: false,
            unclaimed: VecDeque::new(),
            one_at_a_time: false,
            error: None,
            failed: 0,
            waiters: Waiters::default(),
            limited: limit.map(LimitState::new),
            dropped: false,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of accepted connections that no task has claimed yet.
    pub(crate) fn unclaimed(&mut self) -> usize {
        self.slots.values().map(|listener| listener.unclaimed.len()).sum()
    }

    pub(crate) fn fd(&mut self, slot: u32) -> Fd {
        self.slots.get(slot).fd
    }

    /// Claims the next connection, or waits for one.
    pub(crate) fn poll_accept(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Accepted>> {
        let listener = self.slots.get(slot);
        let outcome = listener.claim();
        let DeferredDrops { wakes, drops, .. } = &mut state.deferred;
        if outcome.is_some() {
            listener.waiters.leave(wait, drops);
            listener.notify(state);
        } else {
            listener.waiters.wait(wait, cx.waker(), wakes, drops);
        }
        listener.accept_more(state, Some(cx));
        outcome.map_or(Poll::Pending, Poll::Ready)
    }

    /// Removes a dropped accept future from the queue, and notifies another task if a connection is
    /// available.
    pub(crate) fn leave_accept(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        id: &mut Option<WaiterId>,
    ) {
        let listener = self.slots.get(slot);
        state.deferred.drops.extend(listener.waiters.remove(id));
        listener.forget_stale_tasks(state);
        listener.notify(state);
    }

    pub(crate) fn recheck(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(listener) = self.slots.find(id) {
            listener.waiters.recheck(listener.available());
            listener.notify(state);
        }
    }

    /// Keeps an accepted connection or handles the error, then lets the listener accept the next
    /// connection.
    pub(crate) fn on_accept(&mut self, state: &mut LoopState, event: Event) {
        let Some(listener) = find_or_late(&mut self.slots, state, &event) else { return };
        listener.arming.on_event(event.more);
        state.in_flight -= usize::from(!event.more);
        let permit = listener.limited.as_mut().and_then(|limited| limited.permit.take());
        match event.result {
            Ok(fd) => {
                // SAFETY: the kernel created this descriptor for the accept, and nothing else owns
                // it.
                let fd = unsafe { Fd::from_raw(fd as RawFd) };
                listener.keep(state, Accepted { fd, permit });
            }
            Err(errno) => {
                if listener.fail(state, errno) {
                    listener.pause(state);
                    self.paused += 1;
                }
                permit.into_iter().for_each(|permit| state.release_permit(permit));
            }
        }
        if listener.dropped {
            return self.close_if_done(state, event.token.slot());
        }
        listener.go_on(state);
    }

    /// Handles the end of a limited listener's poll. After most failures, the listener also tries
    /// to accept, because the accept returns the reason. It would not return a shortage.
    pub(crate) fn on_accept_ready(&mut self, state: &mut LoopState, event: Event) {
        let Some(listener) = find_or_late(&mut self.slots, state, &event) else { return };
        state.in_flight -= 1;
        listener.arming.on_event(false);
        let shortage = event.result.err().filter(|_| is_shortage(event.result));
        if let Some(limited) = &mut listener.limited {
            limited.is_ready = shortage.is_none() && event.result != Err(Errno::CANCELED);
        }
        if shortage.is_some_and(|errno| listener.fail(state, errno)) {
            listener.pause(state);
            self.paused += 1;
        }
        if listener.dropped {
            return self.close_if_done(state, event.token.slot());
        }
        listener.go_on(state);
    }

    /// Retries paused listeners after a descriptor was closed.
    pub(crate) fn resume(&mut self, state: &mut LoopState) {
        if self.paused == 0 {
            return;
        }
        for slot in self.slots.indices() {
            self.on_retry(state, self.slots.id(slot));
        }
    }

    pub(crate) fn on_retry(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(listener) = self.slots.find(id)
            && mem::take(&mut listener.is_paused)
        {
            self.paused -= 1;
            listener.accept_more(state, None);
        }
    }

    /// Handles a dropped handle: stops accepting, and closes the listener and its unclaimed
    /// connections.
    pub(crate) fn drop_listener(&mut self, state: &mut LoopState, slot: u32) {
        let listener = self.slots.get(slot);
        listener.dropped = true;
        self.paused -= usize::from(mem::take(&mut listener.is_paused));
        listener.stop_accept(state);
        self.close_if_done(state, slot);
    }

    /// Closes all listeners. Handles that outlive the runtime return errors.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        for slot in self.slots.indices() {
            self.drop_listener(state, slot);
        }
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for listener in self.slots.values() {
            for waker in listener.waiters.wakers() {
                waits.note(waker, || format!("to accept on descriptor {}", listener.fd));
            }
        }
    }

    fn close_if_done(&mut self, state: &mut LoopState, slot: u32) {
        if !self.slots.get(slot).arming.is_idle() {
            return;
        }
        let mut listener = self.slots.remove(slot);
        listener.waiters.notify_all(&mut state.deferred.drops);
        listener.forget_stale_tasks(state);
        for Accepted { fd, permit } in listener.unclaimed {
            state.close_accepted(fd, permit);
        }
        // Close at once, so that the address is free again, and the kernel accepts no further
        // connection that it would then reset.
        state.close_now(listener.fd);
    }
}

impl Listener {
    fn claim(&mut self) -> Option<io::Result<Accepted>> {
        let Some(accepted) = self.unclaimed.pop_front() else {
            let error = self.error.take()?;
            return Some(Err(named("accept")(with_watch_limit(error.into()))));
        };
        if self.unclaimed.is_empty() {
            self.one_at_a_time = false;
        }
        Some(Ok(accepted))
    }

    /// Returns the number of accepts that could return now.
    fn available(&self) -> usize {
        self.unclaimed.len() + usize::from(self.error.is_some())
    }

    /// Notifies as many tasks as there are connections and errors to return.
    fn notify(&mut self, state: &mut LoopState) {
        let available = self.available();
        if self.waiters.notify(available, &mut state.deferred.wakes) {
            state.rechecks.push(Recheck::Accept(self.id));
        }
    }

    /// Lets an idle listener accept, unless too many connections are unclaimed. `polled` is the
    /// context of the task that polls an accept, if any.
    fn accept_more(&mut self, state: &mut LoopState, polled: Option<&Context<'_>>) {
        let is_at_rest = self.arming.is_idle() && !self.is_paused;
        if !is_at_rest || self.dropped || self.unclaimed.len() >= MAX_UNCLAIMED_CONNECTIONS {
            return;
        }
        if self.limited.is_some() {
            return self.accept_within_limit(state, polled);
        }
        let fd = self.fd;
        let (arming, op) = match self.one_at_a_time {
            true => (Arming::Single, Op::Accept { fd }),
            false => (Arming::Multishot, Op::AcceptMulti { fd }),
        };
        self.arming = arming;
        state.start(self.id.token(OpKind::Accept), op);
    }

    /// Keeps a connection until it is claimed, or closes it if the listener has been dropped.
    fn keep(&mut self, state: &mut LoopState, accepted: Accepted) {
        self.failed = 0;
        if self.dropped {
            state.close_accepted(accepted.fd, accepted.permit);
        } else {
            self.unclaimed.push_back(accepted);
        }
    }

    /// Records a failed accept. Returns true if the listener has to pause.
    fn fail(&mut self, state: &mut LoopState, errno: Errno) -> bool {
        let pauses = match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => true,
            _ if ends_operation_only(errno) => false,
            _ if ends_one_connection(errno) => {
                state.driver.counters().aborted_accepts += 1;
                self.failed += 1;
                self.failed >= MAX_FAILED_ACCEPTS && self.arming.is_idle()
            }
            _ => {
                self.error = Some(errno);
                false
            }
        };
        pauses && !self.dropped
    }

    fn pause(&mut self, state: &mut LoopState) {
        self.is_paused = true;
        state.driver.counters().accept_pauses += 1;
        state.timers.insert(state.now() + RETRY_DELAY, TimerAction::Accept(self.id));
    }

    fn stop_accept(&mut self, state: &mut LoopState) {
        if let Some(kind) = self.arming.stop(OpKind::Accept, OpKind::AcceptReady) {
            state.cancel(self.id.token(kind));
        }
    }

    /// Continues after an accept: notifies tasks, then cancels or arms, depending on the number of
    /// unclaimed connections.
    fn go_on(&mut self, state: &mut LoopState) {
        self.notify(state);
        let is_full = self.unclaimed.len() >= MAX_UNCLAIMED_CONNECTIONS;
        if self.arming == Arming::Multishot && is_full {
            self.one_at_a_time = true;
            return self.stop_accept(state);
        }
        if self.error.is_none() {
            self.accept_more(state, None);
        }
    }
}

/// Returns true for errors that concern one connection: it was aborted, has timed out or is
/// forbidden by a firewall, or accept(2) says to treat the error like `EAGAIN`.
fn ends_one_connection(errno: Errno) -> bool {
    const ONE_CONNECTION: [Errno; 11] = [
        Errno::CONNABORTED,
        Errno::PERM,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::NETDOWN,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
        Errno::TIMEDOUT,
    ];
    ONE_CONNECTION.contains(&errno)
}

struct LimitState {
    limit: LimitedListener,
    /// Whether the backlog holds a connection, or the poll for one has failed.
    is_ready: bool,
    /// The permit of the accept in flight.
    permit: Option<Permit>,
}

impl LimitState {
    fn new(limit: ConnectionLimit) -> Box<Self> {
        Box::new(Self { limit: limit.add_listener(), is_ready: false, permit: None })
    }
}

impl Listener {
    /// Lets an idle listener with a limit poll or accept, if a task waits for a connection.
    ///
    /// If the limit is reached, the task that polls is woken once a connection has closed. If none
    /// polls, all waiting tasks are woken now, so that each polls and registers its waker with the
    /// limit.
    fn accept_within_limit(&mut self, state: &mut LoopState, polled: Option<&Context<'_>>) {
        let Some(limited) = &mut self.limited else { return };
        if self.waiters.is_empty() || !self.unclaimed.is_empty() {
            return;
        }
        if !limited.is_ready {
            self.arming = Arming::Polling;
            return state
                .start(self.id.token(OpKind::AcceptReady), Op::ReadableOnce { fd: self.fd });
        }
        let mut task = polled.map(|cx| cx.waker().clone());
        let permit = limited.limit.take(&mut task);
        state.deferred.drops.extend(task);
        let Some(permit) = permit else {
            if polled.is_none() {
                self.waiters.notify_all(&mut state.deferred.wakes);
            }
            return;
        };
        (limited.is_ready, limited.permit) = (false, Some(permit));
        self.arming = Arming::Single;
        // Another process, or a duplicate of the listener, may have accepted the connection. An
        // accept that waited for the next one would keep its permit from other listeners.
        state.start(self.id.token(OpKind::Accept), Op::AcceptNow { fd: self.fd });
    }

    /// Makes the limit forget the tasks of this listener once most of them have stopped waiting.
    /// Those that still wait are woken, so that they register again.
    fn forget_stale_tasks(&mut self, state: &mut LoopState) {
        let Some(limited) = &self.limited else { return };
        let stale = limited.limit.forget_above(2 * self.waiters.len());
        if !stale.is_empty() {
            state.deferred.drops.extend(stale);
            self.waiters.notify_all(&mut state.deferred.wakes);
        }
    }
}
