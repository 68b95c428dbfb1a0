//! Detects multishot receives that the kernel never ends although their socket has hung up.
//!
//! If data and a reset arrive together, the kernel may deliver the data and never end the receive
//! (Linux 6.18: 39 of 504,411 such connections; `tools/peers/lost-wake-up.c` reproduces it without
//! annulus). So streams that have received data and then been silent for a while are checked once,
//! by a poll that does not wait. If a socket has hung up, its receive is cancelled. The next
//! receive returns the reason.

use super::recv::{RecvOutcome, USUAL_OUTCOME};
use super::{Stream, StreamResources, Streams};
use crate::slots::arming::Arming;
use crate::slots::loop_state::LoopState;
use crate::timers::TimerAction;
use annulus_driver::SlotId;
use annulus_kernel::descriptor;
use rustix::event::PollFlags;
use std::mem;
use std::time::Duration;

/// Length of a period. A stream is checked between one and two periods after it last received data.
const IDLE_CHECK_PERIOD: Duration = Duration::from_secs(2);
const MAX_SOCKETS_PER_POLL: usize = 1024;

/// Streams that received data in this period or the last one. A timer is set while there are any.
#[derive(Default)]
pub(super) struct RecentReceivers {
    this_period: Vec<SlotId>,
    last_period: Vec<SlotId>,
}

fn schedule_idle_check(state: &mut LoopState) {
    state.timers.insert(state.now() + IDLE_CHECK_PERIOD, TimerAction::IdleCheck);
}

impl Stream {
    /// Records that data was received. Called for the first data of a period, after receives that
    /// found no buffer, and for each zero-copy receive. Returns false if earlier bytes have been
    /// lost, so that these must be dropped.
    #[cold]
    pub(super) fn note_received(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        len: u32,
    ) -> bool {
        let is_zero_copy = self.rx.last_outcome.is_zero_copy;
        let usual = RecvOutcome { is_zero_copy, ..USUAL_OUTCOME };
        let before = mem::replace(&mut self.rx.last_outcome, usual);
        if !before.received_recently && state.driver.may_miss_resets() {
            let RecentReceivers { this_period, last_period } = &mut shared.recent_receivers;
            if this_period.is_empty() && last_period.is_empty() {
                schedule_idle_check(state);
            }
            this_period.push(self.id);
        }
        if !is_zero_copy {
            return true;
        }
        self.rx.limit = self.rx.limit.saturating_sub(len);
        self.rx.end.is_none()
    }
}

impl Streams {
    /// Checks the streams that received data in the last period but not in this one, and starts the
    /// next period.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_idle_check(&mut self, state: &mut LoopState) {
        let receivers = &mut self.shared.recent_receivers;
        let this_period = mem::take(&mut receivers.this_period);
        let last_period = mem::replace(&mut receivers.last_period, this_period);
        last_period.chunks(MAX_SOCKETS_PER_POLL).for_each(|some| self.cancel_hung_up(state, some));
        for id in &self.shared.recent_receivers.last_period {
            if let Some(stream) = self.slots.find(*id) {
                stream.rx.last_outcome.received_recently = false;
            }
        }
        if !self.shared.recent_receivers.last_period.is_empty() {
            schedule_idle_check(state);
        }
    }

    /// Cancels receives whose sockets have hung up.
    fn cancel_hung_up(&mut self, state: &mut LoopState, some: &[SlotId]) {
        let slots = &mut self.slots;
        let of_silent = some.iter().filter_map(|id| {
            let stream = slots.find(*id)?;
            // Nothing was received in this period although a receive is armed.
            let is_silent =
                !stream.rx.last_outcome.received_recently && stream.rx.arming == Arming::Multishot;
            is_silent.then_some((*id, (stream.fd, PollFlags::empty())))
        });
        let (silent, polled): (Vec<SlotId>, Vec<_>) = of_silent.unzip();
        let Ok(ready) = descriptor::poll(&polled, Some(Duration::ZERO)) else { return };
        for (id, ready) in silent.into_iter().zip(ready) {
            if !ready.is_empty()
                && let Some(stream) = self.slots.find(id)
            {
                stream.stop_recv(state);
            }
        }
    }
}
