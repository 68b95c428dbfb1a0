//! The steps of a send before the kernel sees it: it waits for space in the queue, and is checked, split if needed, and queued.
//!
//! Large borrowed bytes go by a system call, at once: the kernel copies them, and nothing else does. That is allowed only while nothing of
//! the socket is queued or in flight, so that datagrams stay in order. A datagram that the kernel refuses is queued as usual, and its error
//! handled there. As for streams, the bytes that go so in a turn are bounded, since a socket that takes everything at once would keep the
//! other tasks from running; and small datagrams are copied, since a turn sends many of those by one call.

use super::outgoing::{CONTROL, OutgoingDatagram, SendMeta};
use super::{DatagramSlot, Shared};
use crate::base::io::Io;
use crate::bytes::after::After;
use crate::bytes::chunk::Chunk;
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::Domain;
use std::io;
use std::task::{Context, Poll, ready};

/// Most datagrams that one send with segments makes (`UDP_MAX_SEGMENTS` was 64 before 6.9).
pub(super) const MOST_SEGMENTS: usize = 64;
/// Largest payloads: 65,535 bytes of packet, less the headers.
const MOST_V4: usize = 65_507;
const MOST_V6: usize = 65_527;
/// Why a send without a datagram panics.
const UNSENT: &str = "polled after it was ready";

impl DatagramSlot {
    /// Accepts a datagram for sending as soon as there is space for it.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send), but `WouldBlock`.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        datagram: &mut Option<(Chunk, SendMeta)>,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_send_ready(shared, io, wait, cx));
        Poll::Ready(self.try_send(shared, io, datagram))
    }

    /// Ready once a datagram would be accepted.
    #[inline]
    pub(crate) fn poll_send_ready(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let has_space = self.has_space(shared, io);
        self.wait_until(has_space, &mut io.after, wait, cx)
    }

    /// Ready if what is waited for is there.
    #[inline]
    fn wait_until(
        &mut self,
        is_there: bool,
        after: &mut After,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        if !is_there || wait.has_waited() {
            self.note_wait(is_there, after, wait, cx);
        }
        if is_there { Poll::Ready(()) } else { Poll::Pending }
    }

    #[cold]
    fn note_wait(&mut self, is_over: bool, after: &mut After, wait: Wait<'_>, cx: &Context<'_>) {
        let After { wakes, drops, .. } = after;
        if is_over {
            self.send.waiters.leave(wait, drops);
        } else {
            self.send.waiters.wait(wait, cx.waker(), wakes, drops);
        }
    }

    /// Accepts a datagram for sending, unless too much is queued. It is moved once, out of where it lies to where the kernel reads it.
    ///
    /// # Errors
    /// `WouldBlock` if too much is queued; why an earlier datagram to the same destination was not sent; `InvalidInput` if
    /// this one is too large, or its segments have no bytes.
    #[inline]
    pub(crate) fn try_send(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        datagram: &mut Option<(Chunk, SendMeta)>,
    ) -> io::Result<()> {
        let (chunk, meta) = datagram.as_ref().expect(UNSENT);
        let size = meta.segment_size;
        if let Err(error) = self.check(shared, io, chunk.len(), meta) {
            let chunk = datagram.take().map(|(chunk, _)| chunk);
            chunk.into_iter().for_each(|chunk| chunk.retire(&mut io.spares, &mut io.after));
            return Err(error);
        }
        match size {
            Some(size) if self.format.domain != Domain::Unix => {
                let (chunk, meta) = datagram.take().expect(UNSENT);
                self.queue_segments(shared, io, chunk, meta, size.into());
            }
            _ => self.queue_from(shared, io, datagram),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        len: usize,
        meta: &SendMeta,
    ) -> io::Result<()> {
        if let Some(error) = self.send.failures.take_of(&meta.to) {
            return Err(error);
        }
        if !self.has_space(shared, io) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.format.domain == Domain::Unix {
            return Ok(());
        }
        let most = most_of(meta);
        check_size(meta.segment_size.map_or(len, usize::from), most)?;
        meta.segment_size.map_or(Ok(()), |size| check_segment(size, most))
    }

    /// Queues datagrams of `size` bytes in pieces that the kernel takes at once.
    fn queue_segments(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        mut chunk: Chunk,
        meta: SendMeta,
        size: usize,
    ) {
        let (piece, segment_size) = if self.send.splits_here {
            (size, None)
        } else {
            (size * MOST_SEGMENTS.min(most_of(&meta) / size), meta.segment_size)
        };
        let meta = SendMeta { segment_size, ..meta };
        while chunk.len() > piece {
            let first = chunk.split_to(piece);
            self.queue(shared, io, first, meta.clone());
        }
        let segment_size = meta.segment_size.filter(|_| chunk.len() > size);
        self.queue(shared, io, chunk, SendMeta { segment_size, ..meta });
    }

    pub(super) fn queue(&mut self, shared: &mut Shared, io: &mut Io, chunk: Chunk, meta: SendMeta) {
        self.queue_from(shared, io, &mut Some((chunk, meta)));
    }

    #[inline]
    fn queue_from(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        datagram: &mut Option<(Chunk, SendMeta)>,
    ) {
        let (chunk, _) = datagram.as_ref().expect(UNSENT);
        let (weight, held) = (OutgoingDatagram::weight_of(chunk), chunk.weight());
        let slot = self.id.index;
        let id = shared.outgoing.insert_with(|_| {
            let (chunk, meta) = datagram.take().expect(UNSENT);
            OutgoingDatagram::new(slot, chunk, meta)
        });
        self.send.queue.push_back(id);
        self.send.weight += weight;
        io.memory.meter.add(held);
        self.list_send(shared);
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// Why the last datagram that failed was not sent, and how many more were not, once.
    pub(crate) fn poll_drain(
        &mut self,
        io: &mut Io,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.wait_until(self.send.is_idle(), &mut io.after, wait, cx));
        Poll::Ready(self.send.failures.take_all().map_or(Ok(()), Err))
    }

    /// A future that waited for space or a drain is gone. The others were notified with it.
    pub(crate) fn leave_send(&mut self, io: &mut Io, id: &mut Option<WaiterId>) {
        io.after.drops.extend(self.send.waiters.remove(id));
    }
}

pub(super) fn most_of(meta: &SendMeta) -> usize {
    if meta.v4 { MOST_V4 } else { MOST_V6 }
}

fn check_segment(size: u16, most: usize) -> io::Result<()> {
    if size > 0 {
        return Ok(());
    }
    let text = format!("segments of 0 bytes: take 1 to {most}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn check_size(len: usize, most: usize) -> io::Result<()> {
    if len <= most {
        return Ok(());
    }
    let text = format!(
        "a datagram of {len} bytes is above the limit of {most}: send it in pieces, or with send_segments"
    );
    // `io::ErrorKind` has no kind for EMSGSIZE.
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

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
