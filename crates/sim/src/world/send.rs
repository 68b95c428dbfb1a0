//! One attempt at a send.

use super::World;
use crate::faults::Fault;
use crate::net::{OutgoingDatagram, SendOptions, SocketId};
use crate::op::{Notification, Op, OpKind, OpResult, Outcome, SendOp, SendSource};
use crate::timeline::Nanos;
use annulus_ring::CompletionFlags;
use rustix::io::Errno;

/// Maximum time until the notification of a zero-copy send.
const MAX_NOTIFICATION_DELAY: Nanos = 5_000_000;

impl World {
    /// Sends as many bytes as fit.
    pub(super) fn attempt_send(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        if self.net.socket(socket).is_datagram() {
            return self.attempt_datagram(op, socket);
        }
        let has_address = matches!(&op.body, OpKind::Send(send) if send.to().is_some());
        let space = match self.net.send_space(socket, has_address) {
            Err(Errno::AGAIN) => return Outcome::Waits,
            Err(errno) => return Outcome::Done(op.stopped_by(errno)),
            Ok(space) => space,
        };
        if self.occurs(Fault::Reset) {
            self.net.reset_both(socket);
        }
        let OpKind::Send(send) = &mut op.body else {
            unreachable!("an operation that is not a send was attempted as one")
        };
        let wanted = send.total - send.done;
        let count = self.shorten(space.min(wanted), Fault::ShortWrite);
        if count < wanted {
            self.net.mark_full(socket);
        }
        self.copy(socket, send, count);
        send.done += count;
        let short = send.done < send.total;
        if short && send.all {
            return Outcome::Waits;
        }
        Outcome::Done(OpResult { failed: short && send.short_fails, ..OpResult::good(send.done) })
    }

    /// If the operation is a zero-copy send, starts its notification and adds MORE to its
    /// completion.
    pub(super) fn start_notification(&mut self, op: &mut Op, answer: OpResult) -> OpResult {
        let OpKind::Send(send) = &mut op.body else { return answer };
        if !send.zero_copy {
            return answer;
        }
        let source = std::mem::replace(&mut send.source, SendSource::Many(Box::new([])));
        let after = self.random.between(0, MAX_NOTIFICATION_DELAY);
        let after = if self.is_down(op.ring) { 0 } else { after };
        let notification = OpKind::Notification(Notification::new(source, after, self.poison));
        self.start_waiting(Op::without_socket(op.ring, op.user_data, false, notification), false);
        OpResult { flags: answer.flags | CompletionFlags::MORE.bits(), ..answer }
    }

    /// Sends a datagram, whole or not at all.
    #[inline(never)]
    fn attempt_datagram(&mut self, op: &mut Op, socket: SocketId) -> Outcome {
        let OpKind::Send(SendOp { source, total, ancillary, checksum, .. }) = &mut op.body else {
            unreachable!("an operation that is not a send was attempted as one")
        };
        let mut outgoing =
            OutgoingDatagram { to: None, len: *total, options: SendOptions::default() };
        let mut rights = &mut Vec::new();
        if let Some(ancillary) = ancillary.as_deref_mut() {
            (outgoing.to, outgoing.options) = (ancillary.to.as_ref(), ancillary.options);
            rights = &mut ancillary.rights;
        }
        if outgoing.options.segment.is_some() && self.occurs(Fault::SegmentsRefused) {
            return Outcome::done(Err(Errno::IO));
        }
        let posted = self.net.send_datagram(socket, &outgoing, rights, || source.gather());
        if posted == Err(Errno::AGAIN) && !self.net.target_has_space(socket, outgoing.to) {
            // As on Linux, the first attempt copied the bytes and dropped them when it found the
            // target full, so the next attempt sends none.
            (*source, *total, *checksum) = (SendSource::Many(Box::new([])), 0, None);
        }
        Outcome::done_unless_again(posted.map(|()| *total))
    }

    /// Copies the next `count` bytes of a send.
    fn copy(&mut self, socket: SocketId, send: &mut SendOp, count: usize) {
        if let Some(ancillary) = &mut send.ancillary
            && !ancillary.rights.is_empty()
            // Like on Linux, descriptors are not passed without a byte.
            && count > 0
        {
            self.net.attach_rights(socket, count, std::mem::take(&mut ancillary.rights));
        }
        let (mut skip, mut left) = (send.done, count);
        for &range in send.source.ranges() {
            let part = range.skip(skip).first(left);
            skip = skip.saturating_sub(range.len());
            left -= part.len();
            self.net.write(socket, part);
        }
        self.net.transmit_from(socket);
    }
}
