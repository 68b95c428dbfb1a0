//! `io_uring_enter`: submit, run deferred work and wait, in the order of Linux.

use super::World;
use crate::faults::Fault;
use crate::timeline::{Nanos, nanos};
use annulus_kernel::{EnterArg, EnterFlags, RingId};
use rustix::io::Errno;

/// Maximum number of deferred work items that one `enter` runs, unless it waits for more
/// completions (`IO_LOCAL_TW_DEFAULT_MAX`).
const MAX_WORK_PER_ENTER: u32 = 20;

/// The shortest step of a busy wait. It is above zero, so that every busy wait ends.
const MIN_BUSY_WAIT_STEP: Nanos = 100;

impl World {
    pub(crate) fn enter(
        &mut self,
        ring: RingId,
        to_submit: u32,
        min_complete: u32,
        flags: EnterFlags,
        arg: EnterArg,
    ) -> Result<u32, Errno> {
        let ring = self.find_ring(ring)?;
        self.begin_turn(self.is_down(ring))?;
        let state = self.rings.at_mut(ring);
        state.take_published_buffers();
        if !state.defers() {
            self.run_work(ring, u32::MAX, u32::MAX);
        }
        let harvest = flags.contains(EnterFlags::GETEVENTS);
        let mut submitted = 0;
        if self.rings.at(ring).polls() {
            if flags.contains(EnterFlags::SQ_WAKEUP) {
                self.take_entries(ring, u32::MAX);
            }
            if flags.contains(EnterFlags::SQ_WAIT) || harvest && min_complete > 0 {
                // On Linux, the kernel thread does this concurrently.
                self.take_all(ring);
            }
        } else if to_submit > 0 {
            submitted = self.submit(ring, to_submit)?;
            if submitted != to_submit {
                return Ok(submitted);
            }
            if harvest && self.rings.at(ring).defers() {
                self.run_work(ring, min_complete, MAX_WORK_PER_ENTER.max(min_complete));
            }
        }
        let waited = if harvest { self.wait(ring, min_complete, arg) } else { Ok(()) };
        // Like on Linux, the number of submitted entries is returned, and the reason that ended the
        // wait is lost.
        if submitted > 0 { Ok(submitted) } else { waited.map(|()| 0) }
    }

    /// Begins an `enter` or an epoll wait, which takes time unless its host is down.
    ///
    /// # Errors
    /// TIMEDOUT if too many turns in a row have submitted and completed nothing, and have not
    /// waited. Tasks that only wake one another would continue like that for hours.
    pub(super) fn begin_turn(&mut self, is_down: bool) -> Result<(), Errno> {
        self.counts.enters += 1;
        let before = (self.counts.submitted + self.counts.completed, self.net.time.now());
        self.idle_turns = if before == self.last_turn { self.idle_turns + 1 } else { 0 };
        self.pass(if is_down { 0 } else { self.turn_cost });
        self.last_turn = (before.0, self.net.time.now());
        // Hosts of a network take turns one after another, so each adds to the count.
        let loops = (self.rings.len() + self.epolls.len()).max(1) as u64;
        if self.idle_turns < self.max_idle_turns.saturating_mul(loops) {
            return Ok(());
        }
        self.idle_turns = 0;
        Err(Errno::TIMEDOUT)
    }

    fn find_ring(&self, ring: RingId) -> Result<u32, Errno> {
        let index = if ring.registered {
            let index = usize::try_from(ring.fd).ok();
            let found = index.and_then(|index| *self.registered.get(index)?);
            found.ok_or(Errno::BADF)?.0
        } else {
            self.ring_of(ring.fd)?
        };
        if self.rings.at(index).enabled { Ok(index) } else { Err(Errno::BADFD) }
    }

    /// Lets the time of one step of a busy wait pass.
    pub(crate) fn relax(&mut self) {
        self.pass(self.turn_cost.max(MIN_BUSY_WAIT_STEP));
    }

    /// Lets time pass, and runs the events that are due.
    #[inline]
    pub(crate) fn pass(&mut self, time: Nanos) {
        self.net.time.advance_to(self.net.time.now().saturating_add(time));
        self.net.run();
        self.wake();
    }

    /// Lets time pass until a ring has work, an epoll instance has something to report, or the
    /// deadline is reached. Returns false if nothing can happen and there is no deadline.
    pub(crate) fn pass_until(&mut self, deadline: Option<Nanos>) -> bool {
        let is_idle = |world: &Self| {
            let has_work = world.rings.iter().any(|(_, ring)| ring.has_work());
            !has_work && !world.epolls.iter().any(|(_, epoll)| epoll.has_changed())
        };
        self.pass_while(deadline, is_idle) != Err(Errno::DEADLK)
    }

    /// Lets time pass while a condition holds. Returns TIME at the deadline, and DEADLK if there is
    /// none and nothing can happen.
    pub(super) fn pass_while(
        &mut self,
        deadline: Option<Nanos>,
        is_idle: impl Fn(&Self) -> bool,
    ) -> Result<(), Errno> {
        while is_idle(self) {
            // An event at the maximum time never happens.
            let coming = self.net.time.next().filter(|at| *at < Nanos::MAX);
            let next = match (coming, deadline) {
                (None, None) => return Err(Errno::DEADLK),
                (next, deadline) => next.unwrap_or(u64::MAX).min(deadline.unwrap_or(u64::MAX)),
            };
            self.net.time.advance_to(next);
            self.net.run();
            self.wake();
            if deadline.is_some_and(|deadline| deadline <= next) {
                return Err(Errno::TIME);
            }
        }
        Ok(())
    }

    /// Consumes up to `count` entries.
    fn submit(&mut self, ring: u32, count: u32) -> Result<u32, Errno> {
        if self.occurs(Fault::EnterAgain) {
            return Err(Errno::AGAIN);
        }
        if self.occurs(Fault::EnterBusy) {
            return Err(Errno::BUSY);
        }
        Ok(self.take_entries(ring, count))
    }

    /// Consumes all published entries, even under faults.
    fn take_all(&mut self, ring: u32) {
        while self.rings.at(ring).queues.submitted() > 0 {
            self.take_entries(ring, u32::MAX);
        }
    }

    fn take_entries(&mut self, ring: u32, count: u32) -> u32 {
        let mut left = count.min(self.rings.at(ring).queues.submitted());
        if left > 1 && self.occurs(Fault::PartialSubmit) {
            left = self.random.between(1, u64::from(left) - 1) as u32;
        }
        for _ in 0..left {
            // An invalid index is dropped, but counts as consumed.
            if let Some(entry) = self.rings.at_mut(ring).queues.take_entry() {
                self.submit_one(ring, &entry);
            }
        }
        self.rings.at(ring).queues.commit();
        self.wake();
        left
    }

    fn wait(&mut self, ring: u32, min_complete: u32, arg: EnterArg) -> Result<(), Errno> {
        let mut least = min_complete.min(self.rings.at(ring).queues.completion_entries());
        self.run_work(ring, least, MAX_WORK_PER_ENTER.max(least));
        if self.flush_and_check(ring, least) {
            return Ok(());
        }
        let now = self.net.time.now();
        let deadline = arg.timeout.map(|t| now.saturating_add(nanos(t)));
        let mut batch_end = arg.min_wait.map(|t| now.saturating_add(nanos(t)));
        loop {
            let come = self.wait_for_work(ring, batch_end.or(deadline));
            let end = self.rings.at(ring).queues.taken().wrapping_add(least);
            // The number of missing completions, as a difference of wrapping indices.
            let missing = end.wrapping_sub(self.rings.at(ring).queues.posted());
            self.run_work(ring, missing, missing);
            match come {
                Err(Errno::TIME) if batch_end.take().is_some() => least = 1,
                Err(why) => return self.wait_result(ring, why),
                Ok(()) => {}
            }
            if self.flush_and_check(ring, least) {
                return Ok(());
            }
        }
    }

    fn flush_and_check(&mut self, ring: u32, least: u32) -> bool {
        let ring = self.rings.at_mut(ring);
        ring.flush_overflow();
        ring.queues.ready() >= least
    }

    /// Returns the result of a wait that ended early. It is an error only if there are no
    /// completions, or on a deadlock.
    fn wait_result(&self, ring: u32, why: Errno) -> Result<(), Errno> {
        let nothing = self.rings.at(ring).queues.ready() == 0;
        if nothing || why == Errno::DEADLK { Err(why) } else { Ok(()) }
    }

    /// Lets time pass until the ring has work.
    fn wait_for_work(&mut self, ring: u32, deadline: Option<Nanos>) -> Result<(), Errno> {
        if !self.rings.at(ring).has_work() && self.occurs(Fault::Interrupt) {
            return Err(Errno::INTR);
        }
        self.pass_while(deadline, |world| !world.rings.at(ring).has_work())
    }
}
