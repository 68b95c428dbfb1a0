//! One direction of a connection, stored at the receiving end: bytes to be read, bytes in flight,
//! and bytes to be sent. All are in one queue, so each byte is copied in once and out once.

use crate::timeline::Nanos;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The sender may send more.
    #[default]
    Open,
    /// The end follows the last byte that is still to be sent.
    Queued,
    Flying,
    /// The end has arrived at the receiver.
    Arrived,
}

#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// `arrived` readable bytes, then `in_flight` bytes, then those still to be sent.
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) arrived: usize,
    in_flight: usize,
    pub(crate) end: StreamEnd,
    pub(crate) wire: Wire,
}

impl Flow {
    /// Returns the number of bytes still to be sent.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.arrived - self.in_flight
    }

    /// Returns the number of bytes that the sender still stores.
    #[inline]
    pub(crate) fn unacknowledged(&self) -> usize {
        self.bytes.len() - self.arrived
    }

    /// Returns how many bytes may be sent now: at most one segment, and none if the window has
    /// space for only a small part of them.
    #[inline]
    pub(crate) fn sendable(&self, receive_buffer: usize, segment: usize) -> usize {
        let window = receive_buffer.saturating_sub(self.arrived + self.in_flight);
        let unsent = self.unsent();
        let worthwhile = segment.min(receive_buffer / 2).max(1);
        if window >= unsent.min(worthwhile) { window.min(unsent).min(segment) } else { 0 }
    }

    /// Sends the next `count` unsent bytes.
    #[inline]
    pub(crate) fn depart(&mut self, count: usize) {
        self.in_flight += count;
    }

    /// Makes the oldest `count` bytes in flight arrive.
    #[inline]
    pub(crate) fn arrive(&mut self, count: usize) {
        self.in_flight -= count;
        self.arrived += count;
    }

    /// Drops the oldest `count` bytes in flight, because they arrive at a closed socket.
    pub(crate) fn lose(&mut self, count: usize) {
        self.in_flight -= count;
        self.bytes.drain(self.arrived..self.arrived + count);
    }

    pub(crate) fn discard_arrived(&mut self) {
        self.bytes.drain(..self.arrived);
        self.arrived = 0;
    }

    /// Drops the unsent bytes, and the end of the stream if it has not been sent.
    pub(crate) fn discard_unsent(&mut self) {
        self.bytes.truncate(self.arrived + self.in_flight);
        if self.end == StreamEnd::Queued {
            self.end = StreamEnd::Open;
        }
    }
}

/// A link in one direction. Each transmission waits for the earlier ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    /// `free` is the time when the link becomes free. `last` is the time when the last transmission
    /// arrives.
    free: Nanos,
    last: Nanos,
}

impl Wire {
    /// Returns true if the link is still busy with earlier transmissions at `at`.
    #[inline]
    pub(crate) fn is_busy_at(&self, at: Nanos) -> bool {
        self.free > at
    }

    /// Returns true if all transmissions have arrived by `at`, so that the link is as good as new.
    pub(crate) fn is_idle_at(&self, at: Nanos) -> bool {
        self.last <= at
    }

    /// Returns when a transmission arrives that occupies the link for `occupied` and then takes
    /// `delay`. It never overtakes an earlier one.
    #[inline]
    pub(crate) fn schedule(&mut self, now: Nanos, occupied: Nanos, delay: Nanos) -> Nanos {
        self.free = self.free.max(now).saturating_add(occupied);
        self.last = self.last.max(self.free.saturating_add(delay));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_from_unsent_to_in_flight_to_arrived() {
        let mut flow = Flow::default();
        flow.bytes.extend([7; 100]);
        assert_eq!((flow.unsent(), flow.sendable(60, 1000)), (100, 60));
        flow.depart(60);
        assert_eq!((flow.unsent(), flow.unacknowledged(), flow.sendable(60, 1000)), (40, 100, 0));
        flow.arrive(60);
        assert_eq!((flow.arrived, flow.unacknowledged()), (60, 40));
        flow.depart(30);
        flow.lose(30);
        assert_eq!((flow.arrived, flow.unacknowledged()), (60, 10));
        flow.discard_unsent();
        flow.discard_arrived();
        assert!(flow.bytes.is_empty());
    }

    #[test]
    fn small_window_opening_sends_nothing() {
        let mut flow = Flow::default();
        flow.bytes.extend([7; 100]);
        flow.depart(60);
        flow.arrive(60);
        flow.bytes.drain(..10);
        flow.arrived -= 10;
        assert_eq!(flow.sendable(60, 1000), 0, "a segment of 10 of 60 bytes was sent");
        flow.bytes.drain(..25);
        flow.arrived -= 25;
        assert_eq!(flow.sendable(60, 1000), 35);
    }

    #[test]
    fn later_transmission_does_not_overtake() {
        let mut wire = Wire::default();
        let slow = wire.schedule(0, 10, 1000);
        let quick = wire.schedule(5, 10, 1);
        assert_eq!((slow, quick), (1010, 1010));
    }
}
