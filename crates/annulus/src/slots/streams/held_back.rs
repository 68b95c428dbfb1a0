//! Streams that hold more than the memory limit leaves each of them: they arm no receive, and their sends wait.

use crate::runtime::inner::Inner;
use crate::runtime::memory::Memory;
use crate::time::Fire;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Streams that are looked at in a turn, of those that were held back. Few in tests, so that it takes several turns there.
const SWEEP: usize = if cfg!(test) { 16 } else { 256 };
/// How soon to weigh again while streams are held back: other threads free memory without a wake.
const AGAIN: Duration = Duration::from_millis(20);

/// The streams that are held back, in order.
pub(crate) struct HeldBack {
    /// Their slots; among them slots that have been reused since.
    waiting: VecDeque<u32>,
    /// Of these, how many are to be looked at; and the allowance when that began.
    sweep: usize,
    swept_at: usize,
    has_timer: bool,
}

impl HeldBack {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self { waiting: VecDeque::new(), sweep: 0, swept_at: memory.allowance, has_timer: false }
    }

    /// Streams are left to be looked at: the loop must not sleep.
    #[inline]
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweep > 0
    }
}

impl Inner {
    /// Puts a stream on the list of those that hold more than they may.
    #[cold]
    pub(crate) fn hold_back(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        if mem::replace(&mut stream.held_back, true) {
            return;
        }
        self.held_back.waiting.push_back(slot);
        self.io.driver.counters().memory_pauses += 1;
        // Entries of streams that have closed are dropped as they are looked at.
        if self.held_back.waiting.len() > 2 * self.streams.len() + SWEEP {
            self.held_back.sweep = self.held_back.waiting.len();
        }
        self.weigh_again();
    }

    fn weigh_again(&mut self) {
        // On a simulated kernel there are no other threads, and a timer would hide a deadlock.
        if !self.held_back.has_timer && self.io.driver.kernel().real_descriptors() {
            self.held_back.has_timer = true;
            self.io.timers.insert(self.io.now() + AGAIN, Fire::Memory);
        }
    }

    pub(crate) fn on_memory_timer(&mut self) {
        self.held_back.has_timer = false;
        if !self.held_back.waiting.is_empty() {
            self.weigh_again();
        }
    }

    /// What is held has been weighed: streams that were held back go on as far as they may.
    #[inline]
    pub(crate) fn sweep_held_back(&mut self) {
        if !self.held_back.waiting.is_empty() {
            self.sweep();
        }
    }

    /// Looks at some of those that were held back, once the allowance has risen by a quarter.
    #[cold]
    fn sweep(&mut self) {
        let allowance = self.io.memory.allowance;
        let held_back = &mut self.held_back;
        if allowance > held_back.swept_at.saturating_add(held_back.swept_at / 4) {
            held_back.sweep = held_back.waiting.len();
            held_back.swept_at = allowance;
        }
        held_back.swept_at = held_back.swept_at.min(allowance);
        for _ in 0..held_back.sweep.min(SWEEP) {
            self.held_back.sweep -= 1;
            let Some(slot) = self.held_back.waiting.pop_front() else { break };
            self.reconsider(slot);
        }
    }

    /// Lets a stream go on that was held back, as far as it may.
    fn reconsider(&mut self, slot: u32) {
        let (bound, allowance) = (self.io.send_bound(), self.io.memory.allowance);
        let Some(stream) = self.streams.peek(slot).filter(|stream| stream.held_back) else {
            return;
        };
        if stream.tx.has_room(bound) {
            self.io.after.wakes.extend(stream.tx.take_waker());
        }
        if stream.holds() > allowance {
            return self.held_back.waiting.push_back(slot);
        }
        stream.held_back = false;
        self.receive_more(slot);
    }
}
