//! Streams that hold more than the memory limit leaves each of them: they arm no receive, and their sends wait.

use super::{Shared, Stream, Streams};
use crate::base::io::Io;
use crate::timers::TimerAction;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Streams that are looked at in a turn, of those that were paused. Few in tests, so that it takes several turns there.
const SWEEP: usize = if cfg!(test) { 16 } else { 256 };
/// How soon to look again while streams are paused: other threads free memory without a wake.
const AGAIN: Duration = Duration::from_millis(20);

/// Streams that hold more than the memory limit leaves each of them, in order. Among them are slots that have been reused.
#[derive(Default)]
pub(super) struct MemoryPaused {
    slots: VecDeque<u32>,
    /// How many of the slots are to be looked at; and the allowance when that began.
    pub(super) sweep: usize,
    swept_at: usize,
    has_timer: bool,
}

impl MemoryPaused {
    /// Has the memory that is held compared with the limit again soon.
    fn look_again(&mut self, io: &mut Io) {
        // On a simulated kernel there are no other threads, and a timer would hide a deadlock.
        if !self.has_timer && io.driver.kernel().real_descriptors() {
            self.has_timer = true;
            io.timers.insert(io.now() + AGAIN, TimerAction::Memory);
        }
    }
}

impl Stream {
    /// Puts the stream on the list of those that hold more than they may.
    #[cold]
    pub(super) fn pause_for_memory(&mut self, shared: &mut Shared, io: &mut Io) {
        if !mem::replace(&mut self.memory_paused, true) {
            shared.memory_paused.slots.push_back(self.id.index);
            io.memory.add_paused();
            io.driver.counters().memory_pauses += 1;
            shared.memory_paused.look_again(io);
        }
    }
}

impl Streams {
    pub(crate) fn on_memory_timer(&mut self, io: &mut Io) {
        let paused = &mut self.shared.memory_paused;
        paused.has_timer = false;
        if !paused.slots.is_empty() {
            if !io.memory.is_tight() {
                // Slots whose streams have closed leave the list.
                paused.sweep = paused.slots.len();
            }
            paused.look_again(io);
        }
    }

    /// The memory that is held has been compared with the limit: streams that were paused go on as far as they may.
    #[inline]
    pub(crate) fn sweep_memory_paused(&mut self, io: &mut Io) {
        if !self.shared.memory_paused.slots.is_empty() {
            self.sweep(io);
        }
    }

    /// Looks at some of those that were paused, once the allowance has risen by a quarter, or there is enough memory again. Slots that
    /// were reused go as they are looked at: if there are many, all are looked at.
    #[cold]
    fn sweep(&mut self, io: &mut Io) {
        let (allowance, streams) = (io.memory.allowance, self.slots.len());
        let paused = &mut self.shared.memory_paused;
        let step = if io.memory.is_tight() { paused.swept_at / 4 } else { 0 };
        let has_risen = allowance > paused.swept_at.saturating_add(step);
        if has_risen || paused.slots.len() > 2 * streams + SWEEP {
            paused.sweep = paused.slots.len();
        }
        paused.swept_at = if has_risen { allowance } else { paused.swept_at.min(allowance) };
        for _ in 0..paused.sweep.min(SWEEP) {
            let paused = &mut self.shared.memory_paused;
            paused.sweep -= 1;
            let Some(slot) = paused.slots.pop_front() else { break };
            self.reconsider(io, slot);
        }
    }

    /// Lets a stream go on that was paused, as far as it may.
    fn reconsider(&mut self, io: &mut Io, slot: u32) {
        let is_paused = |stream: &&mut Stream| stream.memory_paused;
        let Some(stream) = self.slots.peek(slot).filter(is_paused) else { return };
        if stream.tx.bytes <= io.send_bound() {
            io.after.wakes.extend(stream.tx.waker.take());
        }
        // One that waits for its peer and not for memory leaves: its send goes on by itself.
        let waits_to_send = stream.tx.waker.is_some() && stream.tx.bytes <= io.memory.most.send;
        if stream.is_over(io.memory.allowance) || waits_to_send {
            self.shared.memory_paused.slots.push_back(slot);
        } else {
            stream.memory_paused = false;
            io.memory.sub_paused();
        }
        stream.recv_more(&mut self.shared, io);
    }
}
