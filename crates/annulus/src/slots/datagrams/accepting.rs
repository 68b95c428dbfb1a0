//! What a sender meets: room, a datagram accepted and cut where it must be, a flush.

use super::Envelope;
use super::outgoing::Parcel;
use crate::chunk::Chunk;
use crate::runtime::after::After;
use crate::runtime::inner::Inner;
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::Domain;
use std::io;
use std::task::{Context, Poll, ready};

/// Most datagrams that one send with segments makes (`UDP_MAX_SEGMENTS` was 64 before 6.9).
const MOST_SEGMENTS: usize = 64;
/// Largest payloads: 65,535 bytes of packet, but for headers.
const MOST_V4: usize = 65_507;
const MOST_V6: usize = 65_527;

impl Inner {
    /// Ready once so little is queued that a datagram would be accepted.
    pub(crate) fn poll_post_room(
        &mut self,
        slot: u32,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let has_room = self.has_post_room(slot);
        self.wait_to_post(slot, has_room, wait, cx)
    }

    /// Ready if what is waited for is there.
    #[inline]
    fn wait_to_post(
        &mut self,
        slot: u32,
        is_there: bool,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        if !is_there || wait.has_waited() {
            self.note_post_wait(slot, is_there, wait, cx);
        }
        if is_there { Poll::Ready(()) } else { Poll::Pending }
    }

    #[cold]
    fn note_post_wait(&mut self, slot: u32, is_over: bool, wait: Wait<'_>, cx: &Context<'_>) {
        let waiters = &mut self.post.boxes.get(slot).tx.waiters;
        let After { wakes, drops, .. } = &mut self.io.after;
        if is_over {
            waiters.leave(wait, drops);
        } else {
            waiters.wait(wait, cx.waker(), wakes, drops);
        }
    }

    /// Accepts a datagram for sending.
    ///
    /// # Errors
    /// `WouldBlock` where too much is queued; what became of an earlier datagram on the same way; or that this one is too
    /// large, or to be cut into nothing.
    pub(crate) fn accept_post(
        &mut self,
        slot: u32,
        chunk: Chunk,
        envelope: Envelope,
    ) -> io::Result<()> {
        if let Err(error) = self.check_post(slot, &chunk, &envelope) {
            chunk.retire(&mut self.io.spares, &mut self.io.after);
            return Err(error);
        }
        match envelope.segment_size {
            Some(size) if self.post.boxes.get(slot).format.domain != Domain::Unix => {
                let most = most_of(&envelope);
                self.queue_cut(slot, chunk, envelope, size.into(), most);
            }
            _ => self.queue_parcel(slot, chunk, envelope),
        }
        Ok(())
    }

    #[inline]
    fn check_post(&mut self, slot: u32, chunk: &Chunk, envelope: &Envelope) -> io::Result<()> {
        if let Some(error) = self.post.boxes.get(slot).tx.failures.take_on(&envelope.to) {
            return Err(error);
        }
        if !self.has_post_room(slot) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.post.boxes.get(slot).format.domain == Domain::Unix {
            return Ok(());
        }
        let most = most_of(envelope);
        check_size(envelope.segment_size.map_or(chunk.len(), usize::from), most)?;
        envelope.segment_size.map_or(Ok(()), |size| check_segment(size, most))
    }

    /// Queues datagrams of `size` in pieces that the kernel takes at once.
    fn queue_cut(
        &mut self,
        slot: u32,
        mut chunk: Chunk,
        envelope: Envelope,
        size: usize,
        most: usize,
    ) {
        let cuts_here = self.post.boxes.get(slot).tx.cuts_here;
        let (piece, segment_size) = if cuts_here {
            (size, None)
        } else {
            (size * MOST_SEGMENTS.min(most / size), envelope.segment_size)
        };
        let envelope = Envelope { segment_size, ..envelope };
        while chunk.len() > piece {
            let first = chunk.split_to(piece);
            self.queue_parcel(slot, first, envelope.clone());
        }
        let segment_size = envelope.segment_size.filter(|_| chunk.len() > size);
        self.queue_parcel(slot, chunk, Envelope { segment_size, ..envelope });
    }

    #[inline]
    pub(super) fn queue_parcel(&mut self, slot: u32, chunk: Chunk, envelope: Envelope) {
        let (weight, held) = (Parcel::weight_of(&chunk), chunk.weight());
        let id = self.post.parcels.insert_with(|| Parcel::new(slot, chunk, envelope));
        let tx = &mut self.post.boxes.get(slot).tx;
        tx.queue.push_back(id);
        tx.weight += weight;
        self.io.memory.meter.add(held);
        self.list_post(slot);
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// What became of the last datagram that failed, and how many more did, once.
    pub(crate) fn poll_post_flush(
        &mut self,
        slot: u32,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let is_idle = self.post.boxes.get(slot).tx.is_idle();
        ready!(self.wait_to_post(slot, is_idle, wait, cx));
        let failure = self.post.boxes.get(slot).tx.failures.take_all();
        Poll::Ready(failure.map_or(Ok(()), Err))
    }

    /// A future that waited for room or a flush is gone. The others were notified with it.
    pub(crate) fn leave_post(&mut self, slot: u32, id: &mut Option<WaiterId>) {
        let waker = self.post.boxes.get(slot).tx.waiters.remove(id);
        self.io.after.drops.extend(waker);
    }
}

fn most_of(envelope: &Envelope) -> usize {
    if envelope.v4 { MOST_V4 } else { MOST_V6 }
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
    // What the system calls EMSGSIZE has no kind of its own.
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
