//! Bytes that a caller keeps. They are copied to the end of the queue, within the bound; or sent by a system call when they are written:
//! the kernel copies them, and nothing else does.
//!
//! A call is allowed only while nothing of the stream is in flight, so that bytes stay in order; what is queued goes first in the
//! same call. Bytes that the socket has no space for are queued as usual. The bytes that go so in a turn are bounded, so that a task
//! whose peer takes everything at once does not keep the others from running.
//!
//! A call for each of many streams costs more than one for all of them with copies of their bytes, which stay in the cache. So the
//! first write of a turn goes directly if it is of some size, and others only if they are large.

use super::Carrier;
use crate::base::io::Io;
use crate::base::op_error::Operation;
use crate::slots::streams::send::SendPhase;
use crate::slots::streams::{Shared, Stream};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll};

/// The fewest bytes that are worth a system call of their own, for the first in a turn: below, the copy costs less.
const LEAST: usize = 8 * 1024;
/// The fewest bytes for each further one. Buffers for so many are not kept for reuse.
const LARGE: usize = 64 * 1024;
/// The most bytes that go so in a turn, for all streams: about 100 µs of work.
const MOST: usize = 1024 * 1024;
/// The most chunks and slices of a call.
const PARTS: usize = 32;

impl Stream {
    /// Ready once [`try_copy`](Self::try_copy) queues something.
    ///
    /// # Errors
    /// As [`poll_enqueue`](Self::poll_enqueue).
    pub(crate) fn poll_space(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.tx.refuses() {
            return Poll::Ready(Err(self.refusal(io)));
        }
        if self.room(io) > 0 {
            return Poll::Ready(Ok(()));
        }
        self.wait_for_room(shared, io, cx)
    }

    /// Bytes that can be queued now.
    fn room(&self, io: &Io) -> usize {
        self.send_bound(io).saturating_sub(self.tx.bytes)
    }

    /// As [`try_copy`](Self::try_copy), once that queues something.
    ///
    /// # Errors
    /// As [`try_copy`](Self::try_copy).
    pub(crate) fn poll_copy(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some(count) = self.try_copy(shared, io, slices)? {
            return Poll::Ready(Ok(count));
        }
        self.wait_for_room(shared, io, cx)
    }

    /// Sends the slices directly if that is worth it, and copies as much of the rest as the bound leaves room for into a buffer of
    /// the runtime's own. `None` if it leaves none.
    ///
    /// # Errors
    /// As [`poll_enqueue`](Self::poll_enqueue).
    #[inline]
    pub(crate) fn try_copy(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        if self.tx.refuses() {
            return Err(self.refusal(io));
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let direct =
            if total >= LEAST { self.send_directly(shared, io, slices, total)? } else { 0 };
        let count = (total - direct).min(self.room(io));
        if count > 0 {
            self.enqueue_copy(shared, io, count, within(slices, direct..direct + count));
        } else if total > direct && direct == 0 {
            return Ok(None);
        }
        Ok(Some(direct + count))
    }

    /// Sends the queued bytes and then the slices, `total` bytes, as far as the socket has space; how many bytes of the slices went.
    ///
    /// # Errors
    /// The send's.
    fn send_directly(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
        total: usize,
    ) -> io::Result<usize> {
        let left = MOST.saturating_sub(shared.turn.sent_directly);
        let least = if shared.turn.sent_directly == 0 { LEAST } else { LARGE };
        if total < least || left < LEAST || !self.may_send_directly() {
            return Ok(0);
        }
        self.send_parts(shared, io, slices, left, false)
    }

    /// Sends the queued bytes, to be followed at once by pages of a file; whether it could.
    ///
    /// # Errors
    /// The send's.
    pub(crate) fn send_queued(&mut self, shared: &mut Shared, io: &mut Io) -> io::Result<bool> {
        if self.tx.queue.is_empty() || !self.may_send_directly() {
            return Ok(false);
        }
        self.send_parts(shared, io, &[], 0, true)?;
        Ok(true)
    }

    /// Sends the queued bytes and then `most` bytes of the slices; how many of these went.
    fn send_parts(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
        most: usize,
        more: bool,
    ) -> io::Result<usize> {
        let mut parts = [IoSlice::new(&[]); PARTS];
        let (queued, count) = (self.tx.bytes, self.fill(&mut parts, slices, most));
        let sent = match io.driver.kernel().send_now(self.fd, &parts[..count], more) {
            Ok(sent) => sent,
            Err(error) => return self.refused(shared, io, error).map(|()| 0),
        };
        io.driver.counters().direct_sends += 1;
        shared.turn.sent_directly += sent;
        if queued > 0 {
            self.tx.flying = sent.min(queued);
            self.sent(shared, io, sent.min(queued));
        }
        Ok(sent.saturating_sub(queued))
    }

    /// Whether bytes written now would be the next to leave.
    fn may_send_directly(&self) -> bool {
        let tx = &self.tx;
        let is_socket = match self.carrier.as_deref() {
            None => true,
            Some(Carrier::Link(link)) => !link.holds_bytes(),
            Some(Carrier::Descriptors(_) | Carrier::Pipe(_)) => false,
        };
        is_socket && tx.phase == SendPhase::Idle && tx.queue.len() < PARTS
    }

    /// Puts the queued bytes and then the slices into `parts`, `most` bytes of these at most; how many parts there are.
    fn fill<'a>(
        &'a self,
        parts: &mut [IoSlice<'a>; PARTS],
        slices: &'a [IoSlice<'_>],
        most: usize,
    ) -> usize {
        let queued = self.tx.queue.unsent(self.tx.first_sent);
        let bytes = queued.chain(within(slices, 0..most));
        let filled = parts.iter_mut().zip(bytes).map(|(part, bytes)| *part = IoSlice::new(bytes));
        filled.count()
    }

    /// A socket without space, or a system without memory, takes nothing: all of it is queued. Any other error ends the sending.
    #[cold]
    fn refused(&mut self, shared: &mut Shared, io: &mut Io, error: io::Error) -> io::Result<()> {
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(()),
            errno => {
                let errno = errno.unwrap_or(Errno::IO);
                self.fail_send(shared, io, errno);
                Err(self.failed(io, Operation::Send, errno))
            }
        }
    }
}

/// The bytes of several slices that lie in a range, which begins at the first.
#[inline]
fn within<'a>(slices: &'a [IoSlice<'_>], range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
    let (mut skip, mut left) = (range.start, range.len());
    let parts = slices.iter().map(move |slice| {
        let start = skip.min(slice.len());
        let part = &slice[start..slice.len().min(start.saturating_add(left))];
        skip -= start;
        left -= part.len();
        part
    });
    parts.filter(|part| !part.is_empty())
}
