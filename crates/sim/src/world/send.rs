//! One try of a send.

use super::World;
use crate::faults::Fault;
use crate::net::SocketId;
use crate::op::{Answer, Body, Op, Outcome, Send};
use rustix::io::Errno;

impl World {
    /// Sends what there is room for.
    pub(super) fn attempt_send(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        let room = match self.net.room(socket) {
            Err(Errno::AGAIN) => return Outcome::Waits,
            Err(errno) => return Outcome::Done(op.stopped_by(errno)),
            Ok(room) => room,
        };
        if self.strikes(Fault::Reset) {
            self.net.tear(socket);
        }
        let Body::Send(send) = &mut op.body else { unreachable!("asked of sends only") };
        let count = self.shorten(room.min(send.total - send.done), Fault::ShortWrite);
        self.copy(socket, send, count);
        send.done += count;
        let short = send.done < send.total;
        if short && send.all {
            return Outcome::Waits;
        }
        Outcome::Done(Answer { failed: short && send.short_fails, ..Answer::good(send.done) })
    }

    /// Copies the next `count` bytes of a send.
    fn copy(&mut self, socket: SocketId, send: &Send, count: usize) {
        let (mut skip, mut left) = (send.done, count);
        for &piece in send.source.pieces() {
            let part = piece.skip(skip).first(left);
            skip = skip.saturating_sub(piece.len());
            left -= part.len();
            self.net.write(socket, part);
        }
        self.net.transmit_from(socket);
    }
}
