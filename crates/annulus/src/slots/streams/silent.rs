//! Multishot receives whose last wake-up the kernel has lost.
//!
//! If data and a reset arrive together, the kernel may deliver the data and lose the receive:
//! nothing ends it although the socket has hung up (Linux 6.18: 39 of 504,411 such connections;
//! `tools/peers/lost-wake-up.c` reproduces it without annulus). So a stream that has received data
//! and then been silent for a while is checked once, together with all others like it, by a poll
//! that does not wait. A receive on a socket that has hung up is cancelled; armed again, it returns
//! the reason.
use super::recv::REGULARLY;
use super::{Shared, Stream, Streams};
use crate::base::io::Io;
use crate::slots::arming::Arming;
use crate::timers::TimerAction;
use annulus_driver::SlotId;
use annulus_kernel::descriptor;
use rustix::event::PollFlags;
use std::mem;
use std::time::Duration;

/// A stream is checked between one and two periods after it last received data.
const IDLE_CHECK_PERIOD: Duration = Duration::from_secs(2);
/// Maximum number of sockets per poll.
const MAX_SOCKETS_PER_POLL: usize = 1024;

/// Streams that have received data. A timer is set while there are any.
#[derive(Default)]
pub(super) struct Heard {
    /// In the current period.
    now: Vec<SlotId>,
    /// In the previous period.
    before: Vec<SlotId>,
}

fn look_later(io: &mut Io) {
    io.timers.insert(io.now() + IDLE_CHECK_PERIOD, TimerAction::IdleCheck);
}

impl Stream {
    /// Records received data, for the first time in this period or after receives that found no
    /// buffer.
    #[cold]
    pub(super) fn heard(&mut self, shared: &mut Shared, io: &mut Io) {
        let before = mem::replace(&mut self.rx.brought, REGULARLY);
        if before.is_heard || !io.driver.may_miss_resets() {
            return;
        }
        let Heard { now, before } = &mut shared.heard;
        if now.is_empty() && before.is_empty() {
            look_later(io);
        }
        now.push(self.id);
    }
}

impl Streams {
    /// Handles the end of a period.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_idle_check(&mut self, io: &mut Io) {
        let heard = &mut self.shared.heard;
        let before = mem::replace(&mut heard.before, mem::take(&mut heard.now));
        before.chunks(MAX_SOCKETS_PER_POLL).for_each(|some| self.look_at(io, some));
        for id in &self.shared.heard.before {
            if let Some(stream) = self.slots.find(*id) {
                stream.rx.brought.is_heard = false;
            }
        }
        if !self.shared.heard.before.is_empty() {
            look_later(io);
        }
    }

    /// Cancels receives whose sockets have hung up.
    fn look_at(&mut self, io: &mut Io, some: &[SlotId]) {
        let slots = &mut self.slots;
        let of_silent = some.iter().filter_map(|id| {
            let stream = slots.find(*id)?;
            // Nothing was received in this period although a receive is armed.
            let is_silent = !stream.rx.brought.is_heard && stream.rx.arming == Arming::Multishot;
            is_silent.then_some((*id, (stream.fd, PollFlags::empty())))
        });
        let (silent, polled): (Vec<SlotId>, Vec<_>) = of_silent.unzip();
        let Ok(ready) = descriptor::poll(&polled, Some(Duration::ZERO)) else { return };
        for (id, ready) in silent.into_iter().zip(ready) {
            if !ready.is_empty()
                && let Some(stream) = self.slots.find(id)
            {
                stream.stop_recv(io);
            }
        }
    }
}
