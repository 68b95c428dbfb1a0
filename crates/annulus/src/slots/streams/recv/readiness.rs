//! Readiness first, where the receiving operation cannot wait for it by itself: asked for, then received.

use super::State;
use crate::runtime::inner::Inner;
use annulus_driver::{Event, Kind, Op};

impl Inner {
    /// Asks whether a stream is readable: the first half of arming it.
    pub(super) fn arm_readiness(&mut self, slot: u32) {
        let token = self.stream_token(Kind::RecvReady, slot);
        let stream = self.streams.get(slot);
        stream.rx.state = State::Asking;
        let op = Op::ReadableOnce { fd: stream.fd };
        self.io.start(token, op);
    }

    /// There is something to receive; or the question failed, and the receive will tell why.
    pub(crate) fn on_ready(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(stream) = self.streams.find(slot, generation) else { return self.io.late(event) };
        self.io.in_flight -= 1;
        let rx = &mut stream.rx;
        let stopped = rx.state == State::Cancelling;
        rx.state = State::Idle;
        rx.is_ready = true;
        if stopped {
            self.stopped_receiving(slot);
        } else {
            self.want(slot);
        }
    }
}
