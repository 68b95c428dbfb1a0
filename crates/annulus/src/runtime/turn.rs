//! One turn of the loop: run ready tasks; start sends, publish buffers and arm receives; enter the
//! kernel once; dispatch events.
//!
//! While tasks are ready and nothing is queued for the kernel, turns skip the system call for a
//! bounded number of polls and a bounded time: tasks that wake one another cost no system calls, and
//! events that arrive in the meantime are taken together.

use super::core::{Core, Inner};
use crate::slots::loop_state::PREFETCH_EVENTS;
use crate::slots::loop_state::{Recheck, RecheckQueue};
use crate::stats::recorder::Recorder;
use crate::tasks::RootWaker;
use crate::tasks::remote::Remote;
use crate::tasks::run_queue::{self, Probe, TurnState, Unmeasured};
use crate::timers::TimerAction;
use crate::unwind::wake_each;
use annulus_driver::{Event, OpKind, Wait};
use std::cell::RefMut;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::pin;
use std::rc::Weak;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Maximum number of rounds of deferred wakes and drops at a time. Those that are added in the last
/// round wait for the next time.
const MAX_DROP_ROUNDS: u32 = 8;

/// Maximum number of tasks that a turn runs before it enters the kernel.
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

    /// Returns the recorder if this turn is timed.
    #[inline]
    fn timing(&self) -> Option<&Recorder> {
        Some(&self.recorder).filter(|recorder| recorder.is_timed())
    }

    #[cold]
    fn run_timed(&self, recorder: &Recorder) {
        self.run_queue.run(MAX_TASKS_PER_TURN, recorder, self);
    }

    /// Runs the ready tasks, including those that other threads have woken.
    #[inline]
    pub(super) fn run_tasks(&self) -> io::Result<()> {
        self.run_queue.extend(self.remote.take());
        // Checked after the inbox is taken, because that also consumes the wake-up that `stop`
        // caused. A stop that comes later wakes the loop again.
        if self.remote.take_stop() {
            return Err(stopped());
        }
        match self.timing() {
            None => self.run_queue.run(MAX_TASKS_PER_TURN, &Unmeasured, self),
            Some(recorder) => self.run_timed(recorder),
        }
        Ok(())
    }

    /// Runs one turn through the kernel. Does not wait if something is `ready`, and otherwise waits
    /// for at most `max_wait`.
    pub(crate) fn turn(&self, ready: bool, max_wait: Option<Duration>) -> io::Result<()> {
        self.take_turn(ready, false, max_wait)
    }

    /// Like [`turn`](Self::turn), but does not enter the kernel if `may_skip_kernel` is set and
    /// nothing is queued for the kernel.
    #[inline]
    fn take_turn(
        &self,
        ready: bool,
        may_skip_kernel: bool,
        max_wait: Option<Duration>,
    ) -> io::Result<()> {
        // Run deferred drops before the turn, so that operations that they start are part of it.
        let (mut inner, drops_done) = self.run_deferred_drops_of(self.borrow()?)?;
        let closed = self.inline_policy.begin_turn(inner.state.has_checked_events);
        if closed {
            // A listener that is paused for lack of descriptors may resume.
            inner.state.note_closed();
        }
        self.remote.publish_streams(inner.streams.len());
        let busy = ready || !drops_done || !self.run_queue.is_empty();
        self.poison_on_panic(|| {
            inner.turn(busy, may_skip_kernel, max_wait, &self.remote, &self.recorder)
        })?;
        if inner.state.has_checked_events {
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
            if inner.state.deferred.is_empty() {
                return Ok((inner, true));
            }
            let mut wakes = mem::take(&mut inner.state.deferred.wakes);
            let drops =
                inner.state.deferred.has_drops().then(|| mem::take(&mut inner.state.deferred));
            drop(inner);
            wake_each(wakes.drain(..));
            if let Some(drops) = drops {
                drops.discard();
            }
            inner = self.borrow()?;
            if inner.state.deferred.wakes.is_empty() {
                // Keeps the list's allocation.
                inner.state.deferred.wakes = wakes;
            }
        }
        let nothing_left = inner.state.deferred.is_empty();
        Ok((inner, nothing_left))
    }
}

impl TurnState for Core {
    fn now(&self) -> Duration {
        self.kernel.now()
    }

    fn max_polling(&self) -> Option<Duration> {
        let inner = self.borrow().ok()?;
        // If many buffers are lent, run the tasks first: the next turn would receive more bytes,
        // and those receives would use heap memory.
        let pool = inner.state.driver.pool();
        let has_buffers = pool.lent() < pool.capacity() / 4;
        let (streams, datagrams) = (inner.streams.turn_lists(), inner.datagrams.turn_lists());
        has_buffers.then(|| run_queue::max_polling(streams.has_sends() || datagrams.has_sends()))
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the runtime was asked to stop")
}

impl Inner {
    /// Submits queued operations, waits unless something is ready, and dispatches events. Does not
    /// enter the kernel if `may_skip_kernel` is set and nothing is queued.
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
        self.state.has_checked_events = !may_skip_kernel || !self.state.driver.has_nothing_queued();
        if self.state.has_checked_events {
            recorder.turn_ends(&mut self.state.driver);
            self.check_for_events(busy, max_wait, remote)?;
            recorder.turn_begins();
        } else {
            recorder.turn_skips_kernel(&mut self.state.driver);
        }
        self.take_events();
        self.fire_timers();
        self.state.rechecks.age();
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
            return self.state.driver.turn(Wait::No);
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
        self.streams.start_sends(&mut self.state);
        self.datagrams.start_sends(&mut self.state);
        if self.state.sends_on_submit && self.state.driver.sends_assumed_complete() {
            // Frees the buffers of these sends for this turn's receives while they are still in the
            // CPU cache.
            self.streams.assume_sends_complete(&mut self.state);
            self.datagrams.assume_sends_complete(&mut self.state);
            has_sends = self.streams.turn_lists().has_sends();
        }
        if self.state.update_bounds() {
            self.streams.shorten_receives(&mut self.state);
        }
        self.streams.sweep_memory_paused(&mut self.state);
        self.state.driver.refill();
        self.streams.arm_recvs(&mut self.state);
        self.datagrams.arm_recvs(&mut self.state);
        if self.state.take_closed() {
            self.listeners.resume(&mut self.state);
        }
        // Completed sends and resumed streams may have woken tasks.
        let has_wakes = !self.state.deferred.wakes.is_empty();
        has_wakes || has_sends || self.streams.is_busy() || self.datagrams.turn_lists().is_busy()
    }

    /// Waits for an event or the next timer.
    #[inline]
    fn sleep(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        // A guest's clock is its host's.
        let deadline = self.state.timers.next().filter(|_| self.state.clock.is_none());
        let wait = match (deadline, max_wait) {
            (Some(deadline), None) => Wait::Until(deadline.time_since_origin()),
            (_, max_wait) => Wait::UpTo(self.until_timer().into_iter().chain(max_wait).min()),
        };
        self.state.driver.turn(wait)
    }

    /// Returns the time until the next timer, or `None` if no timer is set.
    #[inline]
    pub(super) fn until_timer(&self) -> Option<Duration> {
        self.state.timers.next().map(|next| next.duration_since(self.state.now()))
    }

    /// Returns true if some sends have been started but not yet confirmed, by an event or by the
    /// end of the turn.
    #[inline]
    pub(super) fn has_unconfirmed_sends(&self) -> bool {
        self.streams.turn_lists().has_unconfirmed_sends()
            || self.datagrams.turn_lists().has_unconfirmed_sends()
    }

    /// Returns true if there is nothing to do until an event arrives.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut busy = self.has_unconfirmed_sends();
        busy |= self.recheck_waiters();
        busy |= self.prepare();
        !busy && self.state.driver.has_started_all()
    }

    /// Dispatches all available events, then assumes sends without an event complete.
    #[inline]
    fn take_events(&mut self) {
        // Before any event is handled, because handling one may give the kernel more vectors.
        self.streams.free_vectors(&self.state);
        // Number of upcoming events whose slots have been prefetched. Only slots of streams are
        // prefetched, and only if there are many streams, because a few stay in the cache anyway.
        let are_many = self.streams.len() > PREFETCH_EVENTS as usize;
        let mut prefetched = if are_many { self.prefetch(0) } else { u32::MAX };
        while let Some(event) = self.state.driver.next_event() {
            prefetched -= 1;
            if prefetched <= PREFETCH_EVENTS / 2 {
                prefetched = self.prefetch(prefetched);
            }
            self.dispatch(event);
        }
        if self.state.driver.sends_assumed_complete() {
            self.streams.assume_sends_complete(&mut self.state);
            self.datagrams.assume_sends_complete(&mut self.state);
        }
        if self.state.driver.take_trimmed() {
            // The driver has freed memory that was not needed; the rest of the runtime does the
            // same.
            self.state.spares.clear();
            self.streams.trim(&self.state);
        }
    }

    /// Prefetches the stream slots of the upcoming events at positions
    /// `prefetched..PREFETCH_EVENTS`, as far as there are any. Returns the new position,
    /// `PREFETCH_EVENTS`.
    #[inline]
    fn prefetch(&self, prefetched: u32) -> u32 {
        self.state.driver.upcoming_tokens(prefetched..PREFETCH_EVENTS, |token| {
            if matches!(token.kind(), OpKind::Recv | OpKind::Send) {
                self.streams.prefetch(token);
            }
        });
        PREFETCH_EVENTS
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        let state = &mut self.state;
        match event.token.kind() {
            OpKind::Recv => self.streams.on_recv(state, event),
            OpKind::RecvReady => self.streams.on_ready(state, event),
            OpKind::Send => self.streams.on_send(state, event),
            OpKind::Accept => self.listeners.on_accept(state, event),
            OpKind::AcceptReady => self.listeners.on_accept_ready(state, event),
            OpKind::Connect => self.connects.on_event(state, event),
            OpKind::Poll => self.polls.on_event(state, event),
            OpKind::Nop => self.nops.on_event(state, event),
            OpKind::File => self.file_ops.on_event(state, event),
            OpKind::RecvDatagram => self.datagrams.on_recv(state, event),
            OpKind::SendDatagram => self.datagrams.on_sent(state, event),
            OpKind::DatagramWritable => self.datagrams.on_writable(state, event),
            OpKind::SendZeroCopy => self.streams.on_zero_copy(state, event),
            OpKind::Custom => self.custom_ops.on_event(state, event),
            OpKind::Ignored => {}
        }
    }

    /// Notifies the next waiters about items that the first waiters have not taken. Returns true if
    /// the loop must not sleep.
    #[inline]
    fn recheck_waiters(&mut self) -> bool {
        !self.state.rechecks.is_empty() && self.recheck_due()
    }

    #[cold]
    fn recheck_due(&mut self) -> bool {
        for recheck in self.state.rechecks.take_due() {
            match recheck {
                Recheck::Accept(id) => self.listeners.recheck(&mut self.state, id),
                Recheck::Receive(id) => self.datagrams.recheck_receivers(&mut self.state, id),
                Recheck::Queue(queue) => self.recheck_queue(queue),
            }
        }
        !self.state.rechecks.is_empty() || !self.state.deferred.wakes.is_empty()
    }

    fn recheck_queue(&mut self, weak: Weak<dyn RecheckQueue>) {
        if let Some(queue) = weak.upgrade() {
            if queue.recheck(&mut self.state.deferred.wakes) {
                self.state.rechecks.push(Recheck::Queue(weak));
            }
            // This may be the last reference to the queue's owner, whose drop borrows the runtime.
            self.state.deferred.kept.push(Box::new(queue));
        }
    }

    fn fire_timers(&mut self) {
        if self.state.timers.next().is_none() {
            return;
        }
        let now = self.state.now();
        while let Some(action) = self.state.timers.expired(now) {
            match action {
                TimerAction::Wake(waker) => self.state.deferred.wakes.push(waker),
                TimerAction::Linger(id) => self.streams.on_linger(&mut self.state, id),
                TimerAction::Close(id) => self.streams.on_close_timer(&mut self.state, id),
                TimerAction::Accept(id) => self.listeners.on_retry(&mut self.state, id),
                TimerAction::Recv(id) => self.streams.on_recv_retry(&mut self.state, id),
                TimerAction::DatagramRecv(id) => self.datagrams.on_recv_retry(id),
                TimerAction::WakePoll(id) => self.polls.on_retry(&mut self.state, id),
                TimerAction::Send(id) => self.streams.on_send_retry(&mut self.state, id),
                TimerAction::Memory => self.streams.on_memory_timer(&mut self.state),
                TimerAction::IdleCheck => self.streams.on_idle_check(&mut self.state),
                TimerAction::Connect(id) => self.connects.on_timeout(&mut self.state, id),
                TimerAction::DatagramRetry(id) => self.datagrams.on_retry(&mut self.state, id),
                TimerAction::DatagramLinger(id) => self.datagrams.on_linger(&mut self.state, id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use annulus_driver::{Event, OpKind, Token};
    use annulus_kernel::Fd;
    use rustix::io::Errno;
    use std::io::Write;
    use std::os::fd::IntoRawFd;

    fn event(kind: OpKind, generation: u32, slot: u32, result: Result<u32, Errno>) -> Event {
        Event { token: Token::new(kind, generation, slot), result, more: false, buffer: None }
    }

    #[test]
    fn late_events_are_counted_and_dropped() {
        let runtime = Runtime::new().unwrap();
        let core = runtime.core();
        let (ours, mut remote) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut borrowed = core.borrow().unwrap();
        let inner = &mut *borrowed;
        let stream = inner.streams.add(&inner.state, (Fd::NONE, Vec::new(), None));
        let generation = inner.streams.slots().id(stream).generation;
        inner.streams.slots().remove(stream);
        // The next use of the slot has another generation, and gets no events of the previous one.
        let reborn = inner.streams.add(&inner.state, (Fd::NONE, Vec::new(), None));
        assert_eq!(reborn, stream);
        for kind in [
            OpKind::Recv,
            OpKind::Send,
            OpKind::Connect,
            OpKind::Nop,
            OpKind::RecvDatagram,
            OpKind::SendDatagram,
            OpKind::DatagramWritable,
            OpKind::SendZeroCopy,
            OpKind::Custom,
        ] {
            inner.dispatch(event(kind, generation, stream, Ok(1)));
            inner.dispatch(event(kind, generation + 7, 1_000_000, Err(Errno::CANCELED)));
        }
        let accepted = ours.into_raw_fd() as u32;
        inner.dispatch(event(OpKind::Accept, 5, 99, Ok(accepted)));
        assert_eq!(inner.state.driver.counters().late_completions, 19);
        inner.streams.slots().remove(reborn);
        drop(borrowed);
        // The late connection's descriptor was closed.
        core.turn(true, None).unwrap();
        assert_eq!(std::io::Read::read(&mut remote, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn unread_bytes_stay_within_their_limit() {
        let bound = 64 * 1024_u32;
        let mut runtime = Runtime::builder().unread_limit(bound as usize).build().unwrap();
        let buffer = runtime.core().borrow().unwrap().state.driver.pool().buffer_size();
        let (mut stream, flooder) = runtime
            .block_on(async {
                let listener = crate::net::TcpListener::bind("127.0.0.1:0")?;
                let peer = std::net::TcpStream::connect(listener.local_addr()?)?;
                listener.accept().await.map(|(stream, _)| (stream, peer))
            })
            .unwrap();
        let mut writer = flooder.try_clone().unwrap();
        let flood = std::thread::spawn(move || while writer.write_all(&[1; 65_536]).is_ok() {});
        let mut most = 0;
        for round in 0..200 {
            // Reads in every third round, so that the receive is armed again and again.
            if round % 3 == 0 {
                runtime.block_on(stream.recv()).unwrap();
            }
            runtime.core().turn(true, None).unwrap();
            let mut inner = runtime.core().borrow().unwrap();
            let slot = inner.streams.slots().indices()[0];
            most = most.max(inner.streams.get(slot).0.undelivered());
        }
        assert!(most > bound / 2, "only {most} unread bytes: the bound was not tested");
        // A limited receive may fill its last buffer beyond the limit.
        assert!(most <= bound + buffer, "{most} bytes unread");
        flooder.shutdown(std::net::Shutdown::Both).unwrap();
        flood.join().unwrap();
    }
}
