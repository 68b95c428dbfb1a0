//! Writes of borrowed bytes. They are copied to the end of the queue, within the bound, or sent
//! directly by a system call, so that only the kernel copies them.
//!
//! A direct call is allowed only while nothing of the stream is in flight, so that bytes stay in
//! order. Queued bytes go first in the same call. Bytes that do not fit into the socket are queued
//! as usual. The bytes sent this way are bounded per turn, so that a task whose peer takes
//! everything at once does not starve other tasks.
//!
//! For small writes, one call per stream costs more than copying the bytes of all streams and
//! sending them with one call, because the copies stay in the cache. So the first direct write of a
//! turn has at least [`MIN_FIRST_DIRECT_BYTES`], and each further one at least
//! [`MIN_NEXT_DIRECT_BYTES`].

use super::Carrier;
use crate::errors::Operation;
use crate::slots::loop_state::LoopState;
use crate::slots::streams::send::SendPhase;
use crate::slots::streams::{Stream, StreamResources};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll};

/// Minimum bytes of the first direct write in a turn. Copying fewer bytes costs less than a system
/// call.
const MIN_FIRST_DIRECT_BYTES: usize = 8 * 1024;
/// Minimum bytes of each further direct write in a turn. Copying more would need newly allocated
/// memory, because larger buffers are not kept for reuse.
const MIN_NEXT_DIRECT_BYTES: usize = 64 * 1024;
/// Maximum bytes sent directly per turn by all streams: about 100 µs of work.
const MAX_DIRECT_BYTES_PER_TURN: usize = 1024 * 1024;
/// Maximum chunks and slices per call.
const MAX_PARTS: usize = 32;
/// Minimum room, in bytes, of a stream with nothing queued. It applies even beyond the memory
/// limit, so that every stream keeps moving.
const MIN_ROOM: usize = 4 * 1024;

impl Stream {
    /// Returns `Ready` once [`try_copy`](Self::try_copy) can queue something.
    ///
    /// # Errors
    /// See [`poll_enqueue`](Self::poll_enqueue).
    pub(crate) fn poll_space(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.tx.refuses() {
            return Poll::Ready(Err(self.refusal(state)));
        }
        if self.room(state) > 0 {
            return Poll::Ready(Ok(()));
        }
        self.wait_for_room(shared, state, cx)
    }

    /// Returns the number of bytes that can be queued now. It is never 0 while nothing is queued,
    /// because then no completed send would wake the caller.
    fn room(&self, state: &LoopState) -> usize {
        let bound = self.send_bound(state);
        if self.tx.bytes == 0 {
            return bound.max(MIN_ROOM.min(state.memory.most.send));
        }
        bound.saturating_sub(self.tx.bytes)
    }

    /// Like [`try_copy`](Self::try_copy), but waits until something can be queued.
    ///
    /// # Errors
    /// See [`try_copy`](Self::try_copy).
    pub(crate) fn poll_copy(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        slices: &[IoSlice<'_>],
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some(count) = self.try_copy(shared, state, slices)? {
            return Poll::Ready(Ok(count));
        }
        self.wait_for_room(shared, state, cx)
    }

    /// Sends the slices directly if that is worthwhile, and copies as much of the rest as fits
    /// within the bound into a buffer of the runtime's own. Returns `None` if nothing fits.
    ///
    /// # Errors
    /// See [`poll_enqueue`](Self::poll_enqueue).
    #[inline]
    pub(crate) fn try_copy(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        if self.tx.refuses() {
            return Err(self.refusal(state));
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let direct = if total >= MIN_FIRST_DIRECT_BYTES {
            self.send_directly(shared, state, slices, total)?
        } else {
            0
        };
        let count = (total - direct).min(self.room(state));
        if count > 0 {
            self.enqueue_copy(shared, state, count, within(slices, direct..direct + count));
        } else if total > direct && direct == 0 {
            return Ok(None);
        }
        Ok(Some(direct + count))
    }

    /// Sends the queued bytes and then the slices, which have `total` bytes, as far as the socket
    /// has space. Returns how many bytes of the slices were sent.
    ///
    /// # Errors
    /// The error of the send.
    fn send_directly(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        slices: &[IoSlice<'_>],
        total: usize,
    ) -> io::Result<usize> {
        let left = MAX_DIRECT_BYTES_PER_TURN.saturating_sub(shared.turn_lists.sent_directly);
        let least = if shared.turn_lists.sent_directly == 0 {
            MIN_FIRST_DIRECT_BYTES
        } else {
            MIN_NEXT_DIRECT_BYTES
        };
        if total < least || left < MIN_FIRST_DIRECT_BYTES || !self.may_send_directly() {
            return Ok(0);
        }
        self.send_parts(shared, state, slices, left, false)
    }

    /// Sends the queued bytes at once. With `more`, pages of a file will follow at once. Returns
    /// false if nothing is queued or the stream may not send directly now.
    ///
    /// # Errors
    /// The error of the send.
    pub(crate) fn send_queued(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        more: bool,
    ) -> io::Result<bool> {
        if self.tx.queue.is_empty() || !self.may_send_directly() {
            return Ok(false);
        }
        self.send_parts(shared, state, &[], 0, more)?;
        Ok(true)
    }

    /// Sends the queued bytes and then up to `most` bytes of the slices. Returns how many bytes of
    /// the slices were sent.
    fn send_parts(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        slices: &[IoSlice<'_>],
        most: usize,
        more: bool,
    ) -> io::Result<usize> {
        let mut parts = [IoSlice::new(&[]); MAX_PARTS];
        let (queued, count) = (self.tx.bytes, self.fill(&mut parts, slices, most));
        let sent = match state.driver.kernel().send_now(self.fd, &parts[..count], more) {
            Ok(sent) => sent,
            Err(error) => return self.refused(shared, state, error).map(|()| 0),
        };
        state.driver.counters().direct_sends += 1;
        shared.turn_lists.sent_directly += sent;
        if queued > 0 {
            self.tx.flying = sent.min(queued);
            self.sent(shared, state, sent.min(queued));
        }
        Ok(sent.saturating_sub(queued))
    }

    /// Returns true if a direct call would send bytes in order.
    fn may_send_directly(&self) -> bool {
        let tx = &self.tx;
        let is_socket = match self.carrier.as_deref() {
            None => true,
            Some(Carrier::Link(link)) => !link.holds_bytes(),
            Some(Carrier::Descriptors(_) | Carrier::Pipe(_)) => false,
        };
        is_socket && tx.phase == SendPhase::Idle && tx.queue.len() < MAX_PARTS
    }

    /// Fills `parts` with the queued bytes and then up to `most` bytes of the slices. Returns the
    /// number of parts.
    fn fill<'a>(
        &'a self,
        parts: &mut [IoSlice<'a>; MAX_PARTS],
        slices: &'a [IoSlice<'_>],
        most: usize,
    ) -> usize {
        let queued = self.tx.queue.unsent(self.tx.first_sent);
        let bytes = queued.chain(within(slices, 0..most));
        let filled = parts.iter_mut().zip(bytes).map(|(part, bytes)| *part = IoSlice::new(bytes));
        filled.count()
    }

    /// Handles a refused send. Returns `Ok` if the bytes can be sent later, for example when the
    /// socket has space. Any other error ends the sending direction.
    #[cold]
    fn refused(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        error: io::Error,
    ) -> io::Result<()> {
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(()),
            errno => {
                let errno = errno.unwrap_or(Errno::IO);
                self.fail_send(shared, state, errno);
                Err(self.failed(state, Operation::Send, errno))
            }
        }
    }
}

/// Returns the non-empty parts of the slices that lie within a range of their concatenation.
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
