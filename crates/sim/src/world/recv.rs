//! One attempt at a receive.

use super::World;
use crate::buffers::Buffer;
use crate::faults::Fault;
use crate::net::{Side, SocketId};
use crate::op::{Destination, Op, OpKind, OpResult, Outcome, ReceiveOp};
use annulus_ring::CompletionFlags;
use rustix::io::Errno;

/// Number of repeated receives after which other work runs first (`MULTISHOT_MAX_RETRY`).
const MAX_MULTISHOT_RETRIES: u32 = 32;

/// The outcome of one receive.
pub(super) struct Received {
    /// The result that the completion reports. It includes metadata before the payload, or the
    /// truncated part of a datagram if the receive asks for that.
    pub(super) result: usize,
    /// Bytes of payload.
    pub(super) count: usize,
    pub(super) flags: u32,
    /// Whether the socket may have more to receive now.
    pub(super) again: bool,
}

impl World {
    pub(super) fn attempt_receive(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        if op.nowait && self.net.socket(socket).has_no_datagram() {
            // A receive that may wait ends at once if the socket was shut down; this one does not.
            return Outcome::Waits;
        }
        for _ in 0..=MAX_MULTISHOT_RETRIES {
            let OpKind::Receive(receive) = &mut op.body else {
                unreachable!("an operation that is not a receive was attempted as one")
            };
            let got = match self.receive(op.ring, socket, receive) {
                Ok(got) => got,
                Err(errno) => return Outcome::done_unless_again(Err(errno)),
            };
            let over = receive.count_received(got.count) || self.ends_early(receive.multi);
            if over || !self.post_multishot(op, got.result as i32, got.flags) {
                return Outcome::Done(OpResult { flags: got.flags, ..OpResult::good(got.result) });
            }
            if self.occurs(Fault::EndsBadly) {
                return Outcome::done(Err(Errno::NOMEM));
            }
            if !got.again {
                return Outcome::Waits;
            }
        }
        Outcome::Continues
    }

    fn ends_early(&mut self, multi: bool) -> bool {
        multi && self.occurs(Fault::EndsWell)
    }

    #[inline]
    fn receive(
        &mut self,
        ring: u32,
        socket: SocketId,
        receive: &ReceiveOp,
    ) -> Result<Received, Errno> {
        if receive.cover.is_some() || self.net.socket(socket).is_datagram() {
            return self.receive_message(ring, socket, receive);
        }
        match receive.into {
            Destination::Memory(memory) => {
                let there = self.net.receivable(socket)?;
                let most = self.shorten_read(socket, there);
                let count = self.net.read(socket, memory, most);
                Ok(self.received(socket, count, 0))
            }
            Destination::Vectors(_) => self.receive_message(ring, socket, receive),
            Destination::Group(group) => {
                // As on Linux, a missing buffer is an error even if there is nothing to receive.
                self.next_buffer_len(ring, group)?;
                let there = self.net.receivable(socket)?;
                if there == 0 {
                    return Ok(self.received(socket, 0, 0));
                }
                let most = self.shorten_read(socket, there.min(receive.max_at_once));
                let buffer = self.take_buffer(ring, group);
                let count = self.net.read(socket, buffer.memory, most);
                Ok(self.received(socket, count, buffer.flags()))
            }
        }
    }

    /// Returns how many of `there` bytes a receive gets. If the fault makes it fewer, the remaining
    /// bytes cause another edge.
    #[inline]
    pub(super) fn shorten_read(&mut self, socket: SocketId, there: usize) -> usize {
        let count = self.shorten(there, Fault::ShortRead);
        if count < there {
            self.net.edge(socket, Side::Read);
        }
        count
    }

    #[inline]
    fn received(&mut self, socket: SocketId, count: usize, flags: u32) -> Received {
        let again = self.net.socket(socket).has_more();
        let hint = if again { CompletionFlags::SOCK_NONEMPTY.bits() } else { 0 };
        Received { result: count, count, flags: flags | hint, again }
    }

    /// Returns the size of the next buffer. Fails with ENOBUFS if the group has none, or if the
    /// fault occurs.
    pub(super) fn next_buffer_len(&mut self, ring: u32, group: u16) -> Result<usize, Errno> {
        let next = self.rings.at_mut(ring).group(group).and_then(|group| group.next());
        match next {
            Some(buffer) if !self.occurs(Fault::NoBuffers) => Ok(buffer.memory.len()),
            _ => Err(Errno::NOBUFS),
        }
    }

    pub(super) fn take_buffer(&mut self, ring: u32, group: u16) -> Buffer {
        let group = self.rings.at_mut(ring).group(group);
        group.expect("the buffer group does not exist").take()
    }
}

impl ReceiveOp {
    /// Subtracts received bytes from the limit. Returns true if the receive ends with them.
    #[inline]
    fn count_received(&mut self, count: usize) -> bool {
        let spent = self.remaining.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(count as u32);
            *left == 0
        });
        count == 0 || !self.multi || spent
    }
}
