//! One try of a send.

use super::World;
use crate::faults::Fault;
use crate::net::{Draft, SocketId, Wishes};
use crate::op::{Answer, Body, Notice, Op, Outcome, Send, Source};
use crate::timeline::Nanos;
use annulus_ring::CompletionFlags;
use rustix::io::Errno;

/// How long the memory of a send that was not copied may stay away.
const LATEST_NOTICE: Nanos = 5_000_000;

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

    /// Where a send's memory was lent, its last word is not the last: the memory comes back in its own time.
    pub(super) fn notice_of(&mut self, op: &mut Op, answer: Answer) -> Answer {
        let Body::Send(send) = &mut op.body else { return answer };
        if !send.lent {
            return answer;
        }
        let source = std::mem::replace(&mut send.source, Source::Many(Box::new([])));
        let after = self.random.between(0, LATEST_NOTICE);
        let notice = Body::Notice(Notice::new(source, after, self.poison));
        self.park(Op::alone(op.ring, op.user_data, false, notice), false);
        Answer { flags: answer.flags | CompletionFlags::MORE.bits(), ..answer }
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
