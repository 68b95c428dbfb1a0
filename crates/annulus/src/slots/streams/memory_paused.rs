//! Streams that are paused because they hold more than their allowance under the memory limit.

use super::{Stream, StreamResources, Streams};
use crate::slots::loop_state::LoopState;
use crate::timers::TimerAction;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Maximum number of paused streams that are checked per turn. Small in tests, so that a sweep
/// takes several turns.
const MAX_CHECKS_PER_TURN: usize = if cfg!(test) { 16 } else { 256 };
/// Delay until the next check while streams are paused: other threads free memory without waking
/// the loop.
const RECHECK_DELAY: Duration = Duration::from_millis(20);

/// Slots of paused streams, in the order of their next check. Some of the streams may have been
/// closed and their slots reused.
#[derive(Default)]
pub(super) struct MemoryPaused {
    slots: VecDeque<u32>,
    /// Number of slots that this sweep has not checked yet.
    pub(super) sweep: usize,
    /// The allowance at the last rise that started a sweep, or the lowest since then.
    swept_at: usize,
    has_timer: bool,
}

impl MemoryPaused {
    /// Sets a timer to compare memory use with the limit again.
    fn look_again(&mut self, state: &mut LoopState) {
        // A simulated kernel has no other threads, and a timer would hide a deadlock.
        if !self.has_timer && state.driver.kernel().real_descriptors() {
            self.has_timer = true;
            state.timers.insert(state.now() + RECHECK_DELAY, TimerAction::Memory);
        }
    }
}

impl Stream {
    /// Pauses a stream that holds more than its allowance.
    #[cold]
    pub(super) fn pause_for_memory(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        if !mem::replace(&mut self.memory_paused, true) {
            shared.memory_paused.slots.push_back(self.id.index);
            state.memory.add_paused();
            state.driver.counters().memory_pauses += 1;
            shared.memory_paused.look_again(state);
        }
    }
}

impl Streams {
    pub(crate) fn on_memory_timer(&mut self, state: &mut LoopState) {
        let paused = &mut self.shared.memory_paused;
        paused.has_timer = false;
        if !paused.slots.is_empty() {
            if !state.memory.is_tight() {
                // A sweep removes slots whose streams have closed.
                paused.sweep = paused.slots.len();
            }
            paused.look_again(state);
        }
    }

    /// Resumes paused streams as far as possible, after memory use has been compared with the
    /// limit.
    #[inline]
    pub(crate) fn sweep_memory_paused(&mut self, state: &mut LoopState) {
        if !self.shared.memory_paused.slots.is_empty() {
            self.sweep(state);
        }
    }

    /// Checks some paused streams, if a sweep is under way. A sweep starts when the allowance has
    /// risen: by more than a quarter while memory is short, otherwise by any amount. It also starts
    /// when the list is much longer than the number of streams, to remove slots of closed streams.
    #[cold]
    fn sweep(&mut self, state: &mut LoopState) {
        let (allowance, streams) = (state.memory.allowance, self.slots.len());
        let paused = &mut self.shared.memory_paused;
        let step = if state.memory.is_tight() { paused.swept_at / 4 } else { 0 };
        let has_risen = allowance > paused.swept_at.saturating_add(step);
        if has_risen || paused.slots.len() > 2 * streams + MAX_CHECKS_PER_TURN {
            paused.sweep = paused.slots.len();
        }
        paused.swept_at = if has_risen { allowance } else { paused.swept_at.min(allowance) };
        for _ in 0..paused.sweep.min(MAX_CHECKS_PER_TURN) {
            let paused = &mut self.shared.memory_paused;
            paused.sweep -= 1;
            let Some(slot) = paused.slots.pop_front() else { break };
            self.reconsider(state, slot);
        }
    }

    /// Resumes a paused stream as far as its allowance permits.
    fn reconsider(&mut self, state: &mut LoopState, slot: u32) {
        let is_paused = |stream: &&mut Stream| stream.memory_paused;
        let Some(stream) = self.slots.peek(slot).filter(is_paused) else { return };
        if stream.tx.bytes <= state.send_bound() {
            state.deferred.wakes.extend(stream.tx.waker.take());
        }
        // A stream that waits for its peer and not for memory leaves the list: its send continues
        // by itself.
        let waits_to_send = stream.tx.waker.is_some() && stream.tx.bytes <= state.memory.most.send;
        if stream.is_over(state.memory.allowance) || waits_to_send {
            self.shared.memory_paused.slots.push_back(slot);
        } else {
            stream.memory_paused = false;
            state.memory.sub_paused();
        }
        stream.recv_more(&mut self.shared, state);
    }
}
