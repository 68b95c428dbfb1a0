//! One try of a receive.

use super::World;
use crate::buffers::Buffer;
use crate::faults::Fault;
use crate::net::{Side, SocketId};
use crate::op::{Answer, Body, Into, Op, Outcome, Receive};
use annulus_ring::CompletionFlags;
use rustix::io::Errno;

/// After so many buffers in a row, other work is run (`MULTISHOT_MAX_RETRY`).
const RETRIES: u32 = 32;

/// The outcome of one receive.
pub(super) struct Got {
    /// The result of its completion.
    pub(super) result: usize,
    /// Bytes of payload.
    pub(super) count: usize,
    pub(super) flags: u32,
    /// There may be more to receive at once.
    pub(super) again: bool,
}

impl World {
    pub(super) fn attempt_receive(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        for _ in 0..=RETRIES {
            let Body::Receive(receive) = &mut op.body else {
                unreachable!("asked of receives only")
            };
            let got = match self.receive(op.ring, socket, receive) {
                Ok(got) => got,
                Err(errno) => return Outcome::when_ready(Err(errno)),
            };
            let over = receive.is_over_after(got.count) || self.ends_well(receive.multi);
            if over || !self.post_one_of_many(op, got.result as i32, got.flags) {
                return Outcome::Done(Answer { flags: got.flags, ..Answer::good(got.result) });
            }
            if self.occurs(Fault::EndsBadly) {
                return Outcome::of(Err(Errno::NOMEM));
            }
            if !got.again {
                return Outcome::Waits;
            }
        }
        Outcome::GoesOn
    }

    fn ends_well(&mut self, multi: bool) -> bool {
        multi && self.occurs(Fault::EndsWell)
    }

    #[inline]
    fn receive(&mut self, ring: u32, socket: SocketId, receive: &Receive) -> Result<Got, Errno> {
        if receive.cover.is_some() || self.net.socket(socket).is_datagram() {
            return self.receive_message(ring, socket, receive);
        }
        match receive.into {
            Into::Memory(memory) => {
                let there = self.net.receivable(socket)?;
                let most = self.shorten_read(socket, there);
                let count = self.net.read(socket, memory, most);
                Ok(self.got(socket, count, 0))
            }
            Into::Vectors(_) => self.receive_message(ring, socket, receive),
            Into::Group(group) => {
                // As on Linux, without a buffer it is not checked whether there is something to receive.
                self.buffer_at_hand(ring, group)?;
                let there = self.net.receivable(socket)?;
                if there == 0 {
                    return Ok(self.got(socket, 0, 0));
                }
                let most = self.shorten_read(socket, there.min(receive.most));
                let buffer = self.take_buffer(ring, group);
                let count = self.net.read(socket, buffer.memory, most);
                Ok(self.got(socket, count, buffer.flags()))
            }
        }
    }

    /// How much a receive gets of `there` bytes: less if the fault occurs, and then the rest comes at once, with an edge of its own.
    #[inline]
    pub(super) fn shorten_read(&mut self, socket: SocketId, there: usize) -> usize {
        let count = self.shorten(there, Fault::ShortRead);
        if count < there {
            self.net.edge(socket, Side::Read);
        }
        count
    }

    #[inline]
    fn got(&mut self, socket: SocketId, count: usize, flags: u32) -> Got {
        let again = self.net.socket(socket).has_more();
        let hint = if again { CompletionFlags::SOCK_NONEMPTY.bits() } else { 0 };
        Got { result: count, count, flags: flags | hint, again }
    }

    /// The size of the next buffer, if there is one.
    pub(super) fn buffer_at_hand(&mut self, ring: u32, group: u16) -> Result<usize, Errno> {
        let next = self.rings.at_mut(ring).group(group).and_then(|group| group.next());
        match next {
            Some(buffer) if !self.occurs(Fault::NoBuffers) => Ok(buffer.memory.len()),
            _ => Err(Errno::NOBUFS),
        }
    }

    pub(super) fn take_buffer(&mut self, ring: u32, group: u16) -> Buffer {
        let group = self.rings.at_mut(ring).group(group);
        group.expect("a buffer is at hand").take()
    }
}

impl Receive {
    /// Counts the bytes received; true if the receive ends with them.
    #[inline]
    fn is_over_after(&mut self, count: usize) -> bool {
        let spent = self.left.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(count as u32);
            *left == 0
        });
        count == 0 || !self.multi || spent
    }
}
