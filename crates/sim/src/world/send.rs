//! One try of a send.

use super::World;
use crate::faults::Fault;
use crate::net::{OutgoingDatagram, SendMeta, SocketId};
use crate::op::{Answer, Body, Notification, Op, Outcome, Send, Source};
use crate::timeline::Nanos;
use annulus_ring::CompletionFlags;
use rustix::io::Errno;

/// The longest time until the notification of a zero-copy send.
const LATEST_NOTICE: Nanos = 5_000_000;

impl World {
    /// Sends the bytes that there is space for.
    pub(super) fn attempt_send(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        if self.net.socket(socket).is_datagram() {
            return self.attempt_post(op, socket);
        }
        let space = match self.net.send_space(socket) {
            Err(Errno::AGAIN) => return Outcome::Waits,
            Err(errno) => return Outcome::Done(op.stopped_by(errno)),
            Ok(space) => space,
        };
        if self.occurs(Fault::Reset) {
            self.net.reset_both(socket);
        }
        let Body::Send(send) = &mut op.body else { unreachable!("asked of sends only") };
        let wanted = send.total - send.done;
        let count = self.shorten(space.min(wanted), Fault::ShortWrite);
        if count < wanted {
            self.net.was_full(socket);
        }
        self.copy(socket, send, count);
        send.done += count;
        let short = send.done < send.total;
        if short && send.all {
            return Outcome::Waits;
        }
        Outcome::Done(Answer { failed: short && send.short_fails, ..Answer::good(send.done) })
    }

    /// The completion of a zero-copy send is not the last: its notification comes later.
    pub(super) fn notification_of(&mut self, op: &mut Op, answer: Answer) -> Answer {
        let Body::Send(send) = &mut op.body else { return answer };
        if !send.lent {
            return answer;
        }
        let source = std::mem::replace(&mut send.source, Source::Many(Box::new([])));
        let after = self.random.between(0, LATEST_NOTICE);
        let after = if self.is_down(op.ring) { 0 } else { after };
        let notification = Body::Notification(Notification::new(source, after, self.poison));
        self.park(Op::alone(op.ring, op.user_data, false, notification), false);
        Answer { flags: answer.flags | CompletionFlags::MORE.bits(), ..answer }
    }

    /// Sends a datagram, whole or not at all.
    #[inline(never)]
    fn attempt_post(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        let Body::Send(Send { source, total, ancillary, seal, .. }) = &mut op.body else {
            unreachable!("asked of sends only")
        };
        let mut outgoing = OutgoingDatagram { to: None, len: *total, meta: SendMeta::default() };
        let mut rights = &mut Vec::new();
        if let Some(ancillary) = ancillary.as_deref_mut() {
            (outgoing.to, outgoing.meta) = (ancillary.to.as_ref(), ancillary.meta);
            rights = &mut ancillary.rights;
        }
        if outgoing.meta.segment.is_some() && self.occurs(Fault::SegmentsRefused) {
            return Outcome::of(Err(Errno::IO));
        }
        let posted = self.net.send_datagram(socket, &outgoing, rights, || source.gather());
        if posted == Err(Errno::AGAIN) && !self.net.target_has_space(socket, outgoing.to) {
            // As on Linux: the bytes were copied before the target was found full, and the next try has none.
            (*source, *total, *seal) = (Source::Many(Box::new([])), 0, None);
        }
        Outcome::when_ready(posted.map(|()| *total))
    }

    /// Copies the next `count` bytes of a send.
    fn copy(&mut self, socket: SocketId, send: &mut Send, count: usize) {
        if let Some(ancillary) = &mut send.ancillary
            && !ancillary.rights.is_empty()
        {
            self.net.attach_rights(socket, count, std::mem::take(&mut ancillary.rights));
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
