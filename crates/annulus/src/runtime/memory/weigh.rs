//! Weighing, once a turn, and holding streams back.

use super::{AGAIN, SWEEP, allowance, budget};
use crate::runtime::core::Inner;
use crate::time::Fire;

impl Inner {
    /// Bytes that count against the limit.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.memory.meter.bytes() + self.driver.resident()
    }

    /// The bound of a stream's unsent bytes, as far as there is memory.
    #[inline]
    pub(crate) fn send_bound(&self) -> usize {
        self.bounds.send.min(self.memory.allowance)
    }

    /// Weighs what is held, and sets what streams may hold until the next turn.
    #[inline]
    pub(crate) fn weigh(&mut self) {
        let held = self.held();
        let memory = &mut self.memory;
        let Some(limit) = &memory.limit else { return };
        let (bytes, total) = (limit.bytes(), limit.tell(&mut memory.told, held));
        if total > bytes / 2 || memory.is_tight {
            self.allow(bytes, total);
        }
        if !self.memory.waiting.is_empty() {
            self.sweep();
        }
    }

    #[cold]
    fn allow(&mut self, limit: usize, total: usize) {
        // Below half of it, all is as in the beginning.
        let total = total.max(limit / 2);
        let budget = budget(limit, total);
        self.memory.is_tight = budget.is_tight;
        // Beyond the limit it stays until there is some room below: else all would go on and stop, again and again.
        let margin = if self.memory.allowance == 0 { limit / 16 } else { 0 };
        self.memory.allowance = allowance(limit, total + margin);
        self.driver.set_budget(budget);
    }

    /// Puts a stream on the list of those that hold more than they may.
    #[cold]
    pub(crate) fn hold_back(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        if std::mem::replace(&mut stream.held_back, true) {
            return;
        }
        self.memory.waiting.push_back(slot);
        self.driver.counters().memory_pauses += 1;
        // Entries of streams that have closed are dropped as they are looked at.
        if self.memory.waiting.len() > 2 * self.streams.len() + SWEEP {
            self.memory.sweep = self.memory.waiting.len();
        }
        self.weigh_again();
    }

    fn weigh_again(&mut self) {
        // On a simulated kernel there are no other threads, and a timer would hide a deadlock.
        if !self.memory.has_timer && self.driver.kernel().real_descriptors() {
            self.memory.has_timer = true;
            self.timers.insert(self.now() + AGAIN, Fire::Memory);
        }
    }

    pub(crate) fn on_memory_timer(&mut self) {
        self.memory.has_timer = false;
        if !self.memory.waiting.is_empty() {
            self.weigh_again();
        }
    }

    /// Looks at some of those that were held back, once the allowance has risen by a quarter.
    #[cold]
    fn sweep(&mut self) {
        let memory = &mut self.memory;
        if memory.allowance > memory.swept_at.saturating_add(memory.swept_at / 4) {
            memory.sweep = memory.waiting.len();
            memory.swept_at = memory.allowance;
        }
        memory.swept_at = memory.swept_at.min(memory.allowance);
        for _ in 0..memory.sweep.min(SWEEP) {
            self.memory.sweep -= 1;
            let Some(slot) = self.memory.waiting.pop_front() else { break };
            self.reconsider(slot);
        }
    }

    /// Lets a stream go on that was held back, as far as it may.
    fn reconsider(&mut self, slot: u32) {
        let (bound, allowance) = (self.send_bound(), self.memory.allowance);
        let Some(stream) = self.streams.peek(slot).filter(|stream| stream.held_back) else {
            return;
        };
        if stream.tx.has_room(bound) {
            self.after.wakes.extend(stream.tx.take_waker());
        }
        if stream.holds() > allowance {
            return self.memory.waiting.push_back(slot);
        }
        stream.held_back = false;
        self.receive_more(slot);
    }
}
