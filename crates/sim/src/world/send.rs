//! One try of a send.

use super::World;
use crate::faults::Fault;
use crate::net::{Draft, SocketId, Wishes};
use crate::op::{Answer, Body, Op, Outcome, Send, Source};
use rustix::io::Errno;

impl World {
    /// Sends what there is room for.
    pub(super) fn attempt_send(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        if self.net.socket(socket).is_datagram() {
            return self.attempt_post(op, socket);
        }
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

    /// Sends a datagram: all of it, or nothing.
    #[inline(never)]
    fn attempt_post(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        let Body::Send(Send { source, total, enclosure, seal, .. }) = &mut op.body else {
            unreachable!("asked of sends only")
        };
        let mut draft = Draft { to: None, len: *total, wishes: Wishes::default() };
        let mut rights = &mut Vec::new();
        if let Some(enclosure) = enclosure.as_deref_mut() {
            (draft.to, draft.wishes) = (enclosure.to.as_ref(), enclosure.wishes);
            rights = &mut enclosure.rights;
        }
        if draft.wishes.segment.is_some() && self.strikes(Fault::SegmentsRefused) {
            return Outcome::of(Err(Errno::IO));
        }
        let posted = self.net.post(socket, &draft, rights, || source.gather());
        if posted == Err(Errno::AGAIN) && !self.net.target_has_place(socket, draft.to) {
            // As Linux: the bytes were copied before the target was found full, and the next try has none left.
            (*source, *total, *seal) = (Source::Many(Box::new([])), 0, None);
        }
        Outcome::when_ready(posted.map(|()| *total))
    }

    /// Copies the next `count` bytes of a send.
    fn copy(&mut self, socket: SocketId, send: &mut Send, count: usize) {
        if let Some(enclosure) = &mut send.enclosure
            && !enclosure.rights.is_empty()
        {
            self.net.enclose(socket, count, std::mem::take(&mut enclosure.rights));
        }
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
