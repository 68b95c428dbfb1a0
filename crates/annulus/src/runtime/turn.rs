//! One turn of the loop: run ready tasks; start sends, publish buffers and arm receives; enter the
//! kernel once; dispatch events.
//!
//! While tasks are ready and nothing is queued for the kernel, turns skip the system call for a
//! bounded number of polls: tasks that wake one another cost no system calls, and events that
//! arrive in the meantime are taken together.

use super::core::{Core, Inner};
use crate::base::io::AHEAD;
use crate::base::recheck::{Recheck, RecheckQueue};
use crate::stats::recorder::Recorder;
use crate::tasks::RootWaker;
use crate::tasks::probe::{Probe, Unmeasured};
use crate::tasks::remote::Remote;
use crate::timers::TimerAction;
use crate::unwind::wake_each;
use annulus_driver::{Event, Kind, Wait};
use std::cell::RefMut;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::pin;
use std::rc::Weak;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Maximum rounds of deferred wakes and drops per turn. They may cause further ones, which are left
/// to the next turn.
const MAX_DROP_ROUNDS: u32 = 8;

/// Maximum tasks that a turn runs before it enters the kernel.
const MAX_TASKS_PER_TURN: usize = 1024;

impl Core {
    /// Runs turns until the future is ready.
    pub(crate) fn run<F: Future>(&self, future: F) -> io::Result<F::Output> {
        let mut future = pin!(future);
        let flag = Arc::new(RootWaker::new(self.remote.clone()));
        let waker = Waker::from(flag.clone());
        self.check_not_broken()?;
        let mut cx = Context::from_waker(&waker);
        self.recorder.turn_resumes();
        loop {
            if flag.take() {
                self.run_queue.poll_begins(None);
                self.timing().inspect(|recorder| recorder.polls_begin());
                let polled = future.as_mut().poll(&mut cx);
                self.timing().inspect(|recorder| recorder.polled(None));
                if let Poll::Ready(value) = polled {
                    // Starts the sends and closes that the future queued last.
                    self.turn(true, None)?;
                    return Ok(value);
                }
            }
            self.run_tasks()?;
            let is_ready = flag.is_woken();
            let may_skip_kernel =
                (is_ready || !self.run_queue.is_empty()) && self.run_queue.may_skip_kernel();
            self.take_turn(is_ready, may_skip_kernel, None)?;
        }
    }

    /// Returns the recorder in a turn in which the clock is read.
    #[inline]
    fn timing(&self) -> Option<&Recorder> {
        Some(&self.recorder).filter(|recorder| recorder.is_timed())
    }

    #[cold]
    fn run_timed(&self, recorder: &Recorder) {
        self.run_queue.run(MAX_TASKS_PER_TURN, recorder);
    }

    /// Runs the ready tasks, including those that other threads have woken.
    #[inline]
    pub(super) fn run_tasks(&self) -> io::Result<()> {
        self.run_queue.extend(self.remote.take());
        // After the inbox, because a stop wakes the loop just as a task in the inbox does.
        if self.remote.take_stop() {
            return Err(stopped());
        }
        match self.timing() {
            None => self.run_queue.run(MAX_TASKS_PER_TURN, &Unmeasured),
            Some(recorder) => self.run_timed(recorder),
        }
        Ok(())
    }

    /// Runs one turn through the kernel. Does not wait if something is `ready`, and otherwise waits
    /// for at most `max_wait`.
    pub(crate) fn turn(&self, ready: bool, max_wait: Option<Duration>) -> io::Result<()> {
        self.take_turn(ready, false, max_wait)
    }

    /// Like [`turn`](Self::turn), but if `may_skip_kernel` is set, tasks are ready and may run
    /// before the loop checks for events.
    #[inline]
    fn take_turn(
        &self,
        ready: bool,
        may_skip_kernel: bool,
        max_wait: Option<Duration>,
    ) -> io::Result<()> {
        // Run deferred drops before the turn, so that operations that they start are part of it.
        let (mut inner, drops_done) = self.run_deferred_drops_of(self.borrow()?)?;
        let closed = self.inline_policy.begin_turn(inner.io.has_checked_events);
        if closed {
            // A listener may be paused for lack of descriptors.
            inner.io.note_closed();
        }
        self.remote.publish_streams(inner.streams.len());
        let busy = ready || !drops_done || !self.run_queue.is_empty();
        self.poison_on_panic(|| {
            inner.turn(busy, may_skip_kernel, max_wait, &self.remote, &self.recorder)
        })?;
        if inner.io.has_checked_events {
            self.run_queue.note_event_check();
        }
        self.run_deferred_drops_of(inner).map(drop)
    }

    /// Runs deferred wakes and drops, for a bounded number of rounds. Returns true if none are
    /// left.
    pub(crate) fn run_deferred_drops(&self) -> io::Result<bool> {
        Ok(self.run_deferred_drops_of(self.borrow()?)?.1)
    }

    /// Like [`run_deferred_drops`](Self::run_deferred_drops), but takes the caller's borrow of the
    /// state and returns it.
    #[inline]
    fn run_deferred_drops_of<'a>(
        &'a self,
        mut inner: RefMut<'a, Inner>,
    ) -> io::Result<(RefMut<'a, Inner>, bool)> {
        for _ in 0..MAX_DROP_ROUNDS {
            if inner.io.after.is_empty() {
                return Ok((inner, true));
            }
            let mut wakes = mem::take(&mut inner.io.after.wakes);
            let drops = inner.io.after.has_drops().then(|| mem::take(&mut inner.io.after));
            drop(inner);
            wake_each(wakes.drain(..));
            if let Some(drops) = drops {
                drops.discard();
            }
            inner = self.borrow()?;
            if inner.io.after.wakes.is_empty() {
                // Keeps the list's allocation.
                inner.io.after.wakes = wakes;
            }
        }
        let nothing_left = inner.io.after.is_empty();
        Ok((inner, nothing_left))
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the runtime was asked to stop")
}

impl Inner {
    /// Submits queued operations, waits unless something is ready, and dispatches events. If
    /// `may_skip_kernel` is set and nothing is queued, it skips the kernel because tasks are ready.
    #[inline(never)]
    pub(super) fn turn(
        &mut self,
        ready: bool,
        may_skip_kernel: bool,
        max_wait: Option<Duration>,
        remote: &Remote,
        recorder: &Recorder,
    ) -> io::Result<()> {
        let mut busy = ready || self.has_unconfirmed_sends();
        busy |= self.recheck_waiters();
        busy |= self.prepare();
        self.io.has_checked_events = !may_skip_kernel || !self.io.driver.has_nothing_queued();
        if self.io.has_checked_events {
            recorder.turn_ends(&mut self.io.driver);
            self.check_for_events(busy, max_wait, remote)?;
            recorder.turn_begins();
        } else {
            recorder.turn_skips_kernel(&mut self.io.driver);
        }
        self.take_events();
        self.fire_timers();
        self.io.rechecks.age();
        Ok(())
    }

    /// Submits the queued operations and checks for events. Waits for one if there is nothing else
    /// to do.
    #[inline]
    fn check_for_events(
        &mut self,
        busy: bool,
        max_wait: Option<Duration>,
        remote: &Remote,
    ) -> io::Result<()> {
        if busy || !remote.park() {
            return self.io.driver.turn(Wait::No);
        }
        self.sleep(max_wait)?;
        remote.unpark();
        Ok(())
    }

    /// Queues this turn's submissions: sends, then returned buffers, then receives. Returns true if
    /// the loop must not sleep.
    #[inline]
    fn prepare(&mut self) -> bool {
        let mut has_sends = false;
        self.streams.start_sends(&mut self.io);
        self.datagrams.start_sends(&mut self.io);
        if self.io.sends_on_submit && self.io.driver.sends_assumed_complete() {
            // Frees their buffers for this turn's receives while they are still in the cache.
            self.streams.settle_sends(&mut self.io);
            self.datagrams.settle_sends(&mut self.io);
            has_sends = self.streams.turn().has_sends();
        }
        if self.io.update_bounds() {
            self.streams.shorten_receives(&mut self.io);
        }
        self.streams.sweep_memory_paused(&mut self.io);
        self.io.driver.refill();
        self.streams.arm_recvs(&mut self.io);
        self.datagrams.arm_recvs(&mut self.io);
        if self.io.take_closed() {
            self.listeners.resume(&mut self.io);
        }
        // Completed sends and resumed streams may have woken tasks.
        let has_wakes = !self.io.after.wakes.is_empty();
        has_wakes || has_sends || self.streams.is_busy() || self.datagrams.turn().is_busy()
    }

    /// Waits for an event or the next timer.
    #[inline]
    fn sleep(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        let mut timeout = max_wait;
        if let Some(left) = self.until_timer() {
            timeout = Some(timeout.map_or(left, |max_wait| max_wait.min(left)));
        }
        self.io.driver.turn(Wait::UpTo(timeout))
    }

    /// Returns the time until the next timer.
    #[inline]
    pub(super) fn until_timer(&self) -> Option<Duration> {
        self.io.timers.next().map(|next| next.duration_since(self.io.now()))
    }

    /// Returns true if sends were started whose events, if any, have not been taken.
    #[inline]
    pub(super) fn has_unconfirmed_sends(&self) -> bool {
        self.streams.turn().has_unsettled() || self.datagrams.turn().has_unsettled()
    }

    /// Returns true if there is nothing to do until an event arrives.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut busy = self.has_unconfirmed_sends();
        busy |= self.recheck_waiters();
        busy |= self.prepare();
        !busy && self.io.driver.has_started_all()
    }

    /// Dispatches all available events, then assumes sends without an event complete.
    #[inline]
    fn take_events(&mut self) {
        // Before any event is handled, because handling may submit more.
        self.streams.free_vectors(&self.io);
        // Number of upcoming events whose slots have been prefetched. Only slots of streams are
        // prefetched, and only if there are many streams, because a few stay in the cache anyway.
        let are_many = self.streams.len() > AHEAD as usize;
        let mut prefetched = if are_many { self.prefetch(0) } else { u32::MAX };
        while let Some(event) = self.io.driver.next_event() {
            prefetched -= 1;
            if prefetched <= AHEAD / 2 {
                prefetched = self.prefetch(prefetched);
            }
            self.dispatch(event);
        }
        if self.io.driver.sends_assumed_complete() {
            self.streams.settle_sends(&mut self.io);
            self.datagrams.settle_sends(&mut self.io);
        }
        if self.io.driver.take_trimmed() {
            // The driver has freed memory that was not needed; the rest of the runtime does the
            // same.
            self.io.spares.clear();
            self.streams.trim(&self.io);
        }
    }

    /// Prefetches the slots of upcoming events after the first `prefetched`. Returns the number of
    /// events whose slots have now been prefetched.
    #[inline]
    fn prefetch(&self, prefetched: u32) -> u32 {
        self.io.driver.upcoming_tokens(prefetched..AHEAD, |token| {
            if matches!(token.kind(), Kind::Recv | Kind::Send) {
                self.streams.prefetch(token);
            }
        });
        AHEAD
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        let io = &mut self.io;
        match event.token.kind() {
            Kind::Recv => self.streams.on_recv(io, event),
            Kind::RecvReady => self.streams.on_ready(io, event),
            Kind::Send => self.streams.on_send(io, event),
            Kind::Accept => self.listeners.on_accept(io, event),
            Kind::AcceptReady => self.listeners.on_accept_ready(io, event),
            Kind::Connect => self.connects.on_event(io, event),
            Kind::Poll => self.polls.on_event(io, event),
            Kind::Nop => self.nops.on_event(io, event),
            Kind::File => self.file_ops.on_event(io, event),
            Kind::RecvDatagram => self.datagrams.on_recv(io, event),
            Kind::SendDatagram => self.datagrams.on_sent(io, event),
            Kind::DatagramWritable => self.datagrams.on_writable(io, event),
            Kind::SendZeroCopy => self.streams.on_zero_copy(io, event),
            Kind::Ignored => {}
        }
    }

    /// Notifies the next waiters about items that the first ones have not taken. Returns true if
    /// the loop must not sleep.
    #[inline]
    fn recheck_waiters(&mut self) -> bool {
        !self.io.rechecks.is_empty() && self.recheck_due()
    }

    #[cold]
    fn recheck_due(&mut self) -> bool {
        for recheck in self.io.rechecks.take_due() {
            match recheck {
                Recheck::Accept(id) => self.listeners.recheck(&mut self.io, id),
                Recheck::Receive(id) => self.datagrams.recheck_receivers(&mut self.io, id),
                Recheck::Queue(queue) => self.recheck_queue(queue),
            }
        }
        !self.io.rechecks.is_empty() || !self.io.after.wakes.is_empty()
    }

    fn recheck_queue(&mut self, weak: Weak<dyn RecheckQueue>) {
        if let Some(queue) = weak.upgrade() {
            if queue.recheck(&mut self.io.after.wakes) {
                self.io.rechecks.push(Recheck::Queue(weak));
            }
            // This may be the last reference to the queue's owner, whose drop borrows the runtime.
            self.io.after.kept.push(Box::new(queue));
        }
    }

    fn fire_timers(&mut self) {
        if self.io.timers.next().is_none() {
            return;
        }
        let now = self.io.now();
        while let Some(action) = self.io.timers.expired(now) {
            match action {
                TimerAction::Wake(waker) => self.io.after.wakes.push(waker),
                TimerAction::Linger(id) => self.streams.on_linger(&mut self.io, id),
                TimerAction::Close(id) => self.streams.on_close_timer(&mut self.io, id),
                TimerAction::Accept(id) => self.listeners.on_retry(&mut self.io, id),
                TimerAction::Recv(id) => self.streams.on_recv_retry(&mut self.io, id),
                TimerAction::DatagramRecv(id) => self.datagrams.on_recv_retry(id),
                TimerAction::WakePoll(id) => self.polls.on_retry(&mut self.io, id),
                TimerAction::Send(id) => self.streams.on_send_retry(&mut self.io, id),
                TimerAction::Memory => self.streams.on_memory_timer(&mut self.io),
                TimerAction::IdleCheck => self.streams.on_idle_check(&mut self.io),
                TimerAction::Connect(id) => self.connects.on_timeout(&mut self.io, id),
                TimerAction::DatagramRetry(id) => self.datagrams.on_retry(&mut self.io, id),
                TimerAction::DatagramLinger(id) => self.datagrams.on_linger(&mut self.io, id),
            }
        }
    }
}

#[cfg(test)]
mod tests;
