//! Sends of borrowed bytes by a system call, at once: the kernel copies them, and nothing else does.
//!
//! That is allowed only while nothing of the socket is queued or in flight, so that datagrams stay in order. A datagram that the kernel
//! refuses is queued as usual, and its error handled there. As for streams, the bytes that go so in a turn are bounded, since a socket that takes
//! everything at once would keep the other tasks from running; and small datagrams are copied, since a turn sends many of those by one
//! call.

use super::enqueue::{MOST_SEGMENTS, most_of};
use super::outgoing::{CONTROL, SendMeta};
use super::{DatagramSlot, Shared};
use crate::base::io::Io;
use crate::bytes::chunk::Chunk;
use annulus_kernel::Domain;
use std::io;

/// The fewest bytes that are worth a system call of their own.
const LEAST: usize = 4 * 1024;
/// The most bytes that go so in a turn, for all sockets.
const MOST: usize = 1024 * 1024;

impl DatagramSlot {
    /// Sends borrowed bytes directly if that is worth it, or copies them into a buffer of the runtime's own, to leave with the turn.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub(crate) fn try_send_borrowed(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        bytes: &[u8],
        meta: SendMeta,
    ) -> io::Result<()> {
        if bytes.len() >= LEAST && self.may_send_directly(shared, bytes.len(), &meta) {
            self.check(shared, io, bytes.len(), &meta)?;
            if self.send_directly(shared, io, bytes, &meta) {
                return Ok(());
            }
        }
        let mut buffer = io.spares.take();
        buffer.extend_from_slice(bytes);
        self.try_send(shared, io, &mut Some((Chunk::copied(buffer), meta)))
    }

    /// Whether the kernel would take the datagram as it is, next. A socket with a peer may have an error of an earlier datagram,
    /// which is for the tasks that receive: there it is queued.
    fn may_send_directly(&self, shared: &Shared, len: usize, meta: &SendMeta) -> bool {
        let unsplit = meta
            .segment_size
            .is_none_or(|size| len <= most_of(meta) && len <= usize::from(size) * MOST_SEGMENTS);
        unsplit
            && self.send.is_quiet()
            && !self.send.awaits_retry
            && !self.send.connected
            && self.format.domain != Domain::Unix
            && (meta.segment_size.is_none() || !self.send.splits_here)
            && shared.turn.sent_directly < MOST
    }

    /// Whether the kernel has taken it.
    fn send_directly(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        bytes: &[u8],
        meta: &SendMeta,
    ) -> bool {
        let mut control = [0; CONTROL];
        // A single segment is a plain datagram, which may be larger than the interface allows.
        let several = meta.segment_size.filter(|size| bytes.len() > usize::from(*size));
        let meta = &SendMeta { segment_size: several, ..meta.clone() };
        let control_len = meta.write_control(&mut control);
        let (to, control) = (meta.to.as_bytes(), &control[..control_len]);
        shared.turn.sent_directly += bytes.len();
        let taken = io.driver.kernel().send_datagram_now(self.fd, to, control, bytes).is_ok();
        io.driver.counters().direct_sends += u64::from(taken);
        taken
    }
}
