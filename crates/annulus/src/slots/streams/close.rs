//! How a stream ends: stop new operations, cancel what is in flight, drain, close.

use super::{Receive, Stream};
use crate::net::Permit;
use crate::runtime::inner::Inner;
use crate::time::Fire;
use annulus_kernel::{Fd, SocketOption};
use std::time::Duration;

impl Inner {
    pub(crate) fn add_stream(&mut self, fd: Fd, permit: Option<Permit>) -> u32 {
        let slot = self.streams.insert(Stream::new(fd, permit));
        self.most_streams = self.most_streams.max(self.streams.len());
        slot
    }

    /// The handle is gone. What was accepted is still sent, for as long as the linger.
    pub(crate) fn drop_stream(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        stream.dropped = true;
        let wakers = [stream.rx.take_waker(), stream.tx.take_waker()];
        self.io.after.drops.extend(wakers.into_iter().flatten());
        self.stop_receiving(slot);
        self.discard_received(slot);
        // What goes out at the first try needs no linger; the send sees to it where that comes short.
        if self.streams.get(slot).tx.is_stuck() {
            self.linger(slot);
        }
        self.close_if_done(slot);
    }

    /// Sets the time within which a dropped stream must have sent what it had accepted.
    pub(crate) fn linger(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        if !stream.dropped || stream.tx.linger.is_some() {
            return;
        }
        let deadline = self.io.now() + self.io.bounds.linger;
        let fire = Fire::Linger(slot, self.streams.generation(slot));
        self.streams.get(slot).tx.linger = Some(self.io.timers.insert(deadline, fire));
    }

    /// A close from here on is a reset: the peer must not take a truncated stream for a whole one.
    pub(crate) fn make_reset(&mut self, slot: u32) {
        let fd = self.streams.get(slot).fd;
        // Where the socket is beyond options, it is beyond a reset too.
        _ = self.io.driver.kernel().set_option(fd, SocketOption::Linger(Some(Duration::ZERO)));
    }

    /// The handle is gone and wants nothing more sent: the connection is reset.
    pub(crate) fn abort_stream(&mut self, slot: u32) {
        self.make_reset(slot);
        self.stop_sending(slot);
        self.drop_stream(slot);
    }

    /// The linger is over.
    pub(crate) fn on_linger(&mut self, slot: u32, generation: u32) {
        if let Some(stream) = self.streams.find(slot, generation) {
            stream.tx.linger = None;
            self.make_reset(slot);
            self.stop_sending(slot);
            self.close_if_done(slot);
        }
    }

    /// Closes a dropped stream of which nothing is in flight.
    pub(crate) fn close_if_done(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        if !(stream.dropped && stream.rx.is_idle() && stream.tx.is_idle()) {
            return;
        }
        if !stream.tx.is_over() {
            // The kernel still has memory of ours: the peer hears the end, and a reset can get it back.
            self.end_when_sent(slot);
            return self.linger(slot);
        }
        self.discard_received(slot);
        let stream = self.streams.remove(slot);
        if let Some(key) = stream.tx.linger {
            self.io.timers.remove(key);
        }
        self.io.close_accepted(stream.fd, stream.permit);
    }

    /// Takes a stream of which nothing is in flight off the runtime: descriptor, received bytes, and what it counts against.
    pub(crate) fn release_stream(&mut self, slot: u32) -> (Fd, Vec<u8>, Option<Permit>) {
        let mut received = Vec::with_capacity(self.streams.get(slot).rx.undelivered() as usize);
        while let Some(lease) = self.take_received(slot) {
            received.extend_from_slice(&lease);
        }
        let mut stream = self.streams.remove(slot);
        let wakers = [stream.rx.take_waker(), stream.tx.take_waker()];
        self.io.after.drops.extend(wakers.into_iter().flatten());
        self.io.driver.release(stream.fd);
        (stream.fd, received, stream.permit)
    }

    /// Puts a stream back on a runtime, with what it had received.
    pub(crate) fn adopt_stream(
        &mut self,
        fd: Fd,
        received: Vec<u8>,
        permit: Option<Permit>,
    ) -> u32 {
        let mut stream = Stream::new(fd, permit);
        stream.rx = Receive::with_bytes(received, &self.io.memory.meter);
        let slot = self.streams.insert(stream);
        self.most_streams = self.most_streams.max(self.streams.len());
        slot
    }
}
