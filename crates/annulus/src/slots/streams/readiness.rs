//! Readiness first, if the receiving operation cannot wait for it by itself: polled for, then received.

use super::Streams;
use super::stream::{Life, Stream};
use crate::base::io::Io;
use crate::slots::arming::Arming;
use annulus_driver::{Event, Kind, Op};

impl Stream {
    /// Polls for readiness: the first half of arming.
    pub(super) fn poll_readiness(&mut self, io: &mut Io) {
        self.rx.arming = Arming::Polling;
        io.start(self.id.token(Kind::RecvReady), Op::ReadableOnce { fd: self.fd });
    }
}

impl Streams {
    /// There is something to receive; or the poll has failed, and the receive will return the reason.
    pub(crate) fn on_ready(&mut self, io: &mut Io, event: Event) {
        let slot = event.token.slot();
        let Some(stream) = self.slots.find(slot, event.token.generation()) else {
            return io.late(event);
        };
        io.in_flight -= 1;
        let stopped = stream.rx.arming.on_event(false);
        stream.rx.is_ready = true;
        if stream.pipe().is_some() && !stopped {
            stream.read_pipe(&mut self.shared, io);
        } else if stopped {
            stream.wake_stopped(io);
            stream.recv_more(&mut self.shared, io);
        } else if stream.life == Life::Linked && stream.splices() {
            return self.splice(io, slot);
        } else {
            stream.want(&mut self.shared, io);
        }
        if stream.is_dropped() {
            self.close_if_done(io, slot);
        }
    }
}
