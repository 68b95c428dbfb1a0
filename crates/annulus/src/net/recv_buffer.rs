//! Received bytes that a stream's handle has *shown* to the program, by `fill_buf` or
//! `fill_at_least`, and that the program has not consumed.

use super::stream_handle::StreamHandle;
use crate::bytes::lease::Lease;
use crate::tasks::budget;
use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

/// Bytes that were shown and not consumed. `recv` returns them before it receives from the stream.
///
/// The box is allocated by the first call that needs it, and is then kept. A stream that is read
/// only by `recv` has none, unless it passes descriptors.
#[derive(Default)]
pub(crate) struct RecvBuffer(Option<Box<Unread>>);

#[derive(Default)]
struct Unread {
    /// Never an empty lease.
    first: Option<Lease>,
    /// State that few streams need. `None` while `first` is `None`.
    more: Option<Box<GatheredLeases>>,
    /// Free polls used so far that received nothing new; at most [`MAX_FREE_REPEAT_POLLS`].
    /// `consume` resets it.
    repeat_polls: u16,
    /// Whether the last receive returned the end of the stream or an error, so that another one
    /// usually returns the same.
    ended: bool,
}

#[derive(Default)]
struct GatheredLeases {
    /// Bytes that follow `first`: the rest of a lease that was partly copied. Never an empty lease.
    next: Option<Lease>,
    /// The descriptors that arrived with the bytes of `first` and `next`. They are closed when all
    /// of these bytes have been consumed.
    descriptors: Vec<OwnedFd>,
}

/// Received bytes, and the descriptors that arrived with them.
pub(crate) type Message = (Lease, Vec<OwnedFd>);

/// How many bytes of the next lease are copied behind the first lease, if the first one is too
/// short.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gather {
    /// Only the missing bytes, because the caller knows the final length.
    Missing,
    /// If possible, at least as many bytes as the first lease has, because the caller may need
    /// more.
    Ahead,
}

/// Number of polls that may return bytes already shown, or the end of the stream, without using
/// budget. After that, each unit of budget pays for [`REPEAT_POLLS_PER_UNIT`] polls, so that a task
/// that only repeats its poll does not block others forever. Both numbers are even because some
/// callers poll twice and need both polls to be ready.
const MAX_FREE_REPEAT_POLLS: u16 = 1024;
const REPEAT_POLLS_PER_UNIT: u16 = 8;

/// Minimum number of bytes that [`Gather::Ahead`] copies, if the next lease has that many.
const MIN_COPY_AHEAD_BYTES: usize = 256;

impl RecvBuffer {
    /// Creates a buffer for a stream that passes descriptors.
    pub(crate) fn of_messages() -> Self {
        Self(Some(Box::default()))
    }

    /// Returns the bytes that were shown, or the next bytes that the stream receives.
    #[inline]
    pub(crate) fn poll_recv(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Lease>>> {
        // Usual streams that are read only by `recv` have no box.
        if self.0.is_none() {
            return stream.poll_recv(cx);
        }
        self.poll_shown(stream, cx)
    }

    fn poll_shown(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Lease>>> {
        match self.take() {
            Some(lease) => Poll::Ready(Ok(Some(lease))),
            None => stream.poll_bytes(cx),
        }
    }

    /// Like [`poll_recv`](Self::poll_recv), but returns only bytes that were shown, or that earlier
    /// turns have received.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has been received yet; the stream's errors.
    pub(crate) fn try_recv(&mut self, stream: &StreamHandle) -> io::Result<Option<Lease>> {
        match self.take() {
            Some(lease) => Ok(Some(lease)),
            None => stream.try_recv(),
        }
    }

    /// Like [`poll_recv`](Self::poll_recv), but also returns the descriptors that arrived with the
    /// bytes.
    pub(crate) fn poll_message(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Message>>> {
        let mut descriptors = self.0.as_mut().map(|it| it.take_descriptors()).unwrap_or_default();
        let polled = match self.take() {
            Some(lease) => Poll::Ready(Ok(Some(lease))),
            None => stream.poll_message(cx, &mut descriptors),
        };
        polled.map_ok(|lease| lease.map(|lease| (lease, descriptors)))
    }

    /// Returns `Ready` once [`try_read`](Self::try_read) would return bytes, 0 at the end, or an
    /// error.
    pub(crate) fn poll_readable(
        &self,
        stream: &StreamHandle,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            if self.shown().is_empty() {
                stream.poll_with(|stream, shared, io| stream.poll_readable(shared, io, cx))
            } else {
                Poll::Ready(Ok(()))
            }
        })
    }

    /// Copies bytes of one lease into `memory` and returns their number, which is zero at the end
    /// of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has been received yet; the stream's errors.
    pub(crate) fn try_read(
        &mut self,
        stream: &StreamHandle,
        memory: &mut [u8],
    ) -> io::Result<usize> {
        let unread = self.0.get_or_insert_default();
        if unread.first.is_none() && !memory.is_empty() {
            unread.first = unread.try_more(stream)?;
        }
        let count = memory.len().min(unread.len());
        memory[..count].copy_from_slice(&self.shown()[..count]);
        self.consume(count);
        Ok(count)
    }

    /// Like [`try_read`](Self::try_read), but fills several pieces of memory in order, with the bytes
    /// of several leases.
    ///
    /// # Errors
    /// The errors of [`try_read`](Self::try_read) for the first piece that is not empty.
    pub(crate) fn try_read_vectored(
        &mut self,
        stream: &StreamHandle,
        memory: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let mut done = 0;
        for piece in memory {
            let mut filled = 0;
            while filled < piece.len() {
                match self.try_read(stream, &mut piece[filled..]) {
                    Ok(0) => return Ok(done),
                    Ok(count) => (filled, done) = (filled + count, done + count),
                    Err(error) if done == 0 => return Err(error),
                    // Nothing more has arrived, or the stream has failed: the next call says so.
                    Err(_) => return Ok(done),
                }
            }
        }
        Ok(done)
    }

    /// Takes the bytes of the first lease.
    pub(crate) fn take(&mut self) -> Option<Lease> {
        self.0.as_mut()?.take()
    }

    /// Returns the bytes of the first lease without consuming them; empty if nothing has been
    /// shown.
    pub(crate) fn shown(&self) -> &[u8] {
        self.0.as_ref().and_then(|unread| unread.first.as_deref()).unwrap_or_default()
    }

    /// Returns all shown bytes, followed by `received`.
    pub(crate) fn in_front_of(mut self, received: Vec<u8>) -> Vec<u8> {
        let Some(first) = self.take() else { return received };
        let next = self.take();
        [&*first, next.as_deref().unwrap_or_default(), &received].concat()
    }

    /// Shows at least `n` bytes and at least one, or fewer at the end of the stream. Bytes that
    /// arrived in several leases are copied into one piece of heap memory.
    ///
    /// # Errors
    /// The stream's errors. Bytes received before the error stay.
    #[inline]
    pub(crate) fn poll_fill_at_least(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
        n: usize,
    ) -> Poll<io::Result<&[u8]>> {
        let unread = self.0.get_or_insert_default();
        if unread.first.is_some() && unread.len() >= n {
            ready!(unread.poll_repeat(cx));
        } else if unread.ended {
            ready!(unread.poll_repeat(cx));
            ready!(budget::poll_free(|| unread.poll_fill(stream, cx, n, Gather::Ahead)))?;
        } else {
            ready!(budget::poll_with(cx, || unread.poll_fill(stream, cx, n, Gather::Ahead)))?;
        }
        Poll::Ready(Ok(unread.first.as_deref().unwrap_or_default()))
    }

    /// Returns the next `n` bytes as a lease, without a copy if they are all in one lease.
    ///
    /// # Errors
    /// The stream's errors; `UnexpectedEof` if the stream ends first. Received bytes stay.
    pub(crate) fn poll_exact(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
        n: usize,
    ) -> Poll<io::Result<Lease>> {
        if n == 0 {
            return budget::poll_take(cx).map(|()| Ok(Lease::copy_of(b"")));
        }
        let unread = self.0.get_or_insert_default();
        ready!(unread.poll_fill(stream, cx, n, Gather::Missing))?;
        let there = unread.len();
        Poll::Ready(if there < n { Err(ended(there, n)) } else { Ok(unread.split_to(n)) })
    }

    /// Drops the first `n` of the bytes that are shown.
    ///
    /// # Panics
    /// If fewer than `n` bytes are shown.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        match &mut self.0 {
            Some(unread) if n <= unread.len() => unread.advance(n),
            unread => {
                let shown = unread.as_ref().map_or(0, |unread| unread.len());
                assert!(n == 0, "consume({n}), but only {shown} bytes are shown");
            }
        }
    }
}

/// Returns the error for a stream that ended after `there` of `wanted` bytes.
pub(crate) fn ended(there: usize, wanted: usize) -> io::Error {
    let text = format!("the stream ended after {there} of {wanted} bytes");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

impl Unread {
    #[inline]
    fn len(&self) -> usize {
        self.first.as_ref().map_or(0, Lease::len)
    }

    fn take(&mut self) -> Option<Lease> {
        let first = self.first.take();
        self.show_next();
        first
    }

    /// Replaces the first lease, which has been used up, by the next one. Closes the descriptors if
    /// no lease is left.
    #[inline]
    fn show_next(&mut self) {
        self.first = self.take_next();
        if self.first.is_none() {
            self.more = None;
        }
    }

    #[inline]
    fn take_next(&mut self) -> Option<Lease> {
        self.more.as_mut().and_then(|more| more.next.take())
    }

    fn keep_next(&mut self, next: Lease) {
        self.more.get_or_insert_default().next = Some(next);
    }

    fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.more.as_mut().map(|more| mem::take(&mut more.descriptors)).unwrap_or_default()
    }

    /// Receives the next bytes of the stream, and keeps the descriptors that arrive with them.
    fn poll_more(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Lease>>> {
        let mut descriptors = self.take_descriptors();
        let polled = stream.poll_message(cx, &mut descriptors);
        self.ended = matches!(polled, Poll::Ready(Ok(None) | Err(_)));
        self.keep_descriptors(descriptors);
        polled
    }

    /// Like [`poll_more`](Self::poll_more), but returns only bytes that earlier turns have received.
    fn try_more(&mut self, stream: &StreamHandle) -> io::Result<Option<Lease>> {
        let mut descriptors = self.take_descriptors();
        let lease = stream.try_message(&mut descriptors);
        self.keep_descriptors(descriptors);
        lease
    }

    fn keep_descriptors(&mut self, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            self.more.get_or_insert_default().descriptors = descriptors;
        }
    }

    /// Counts a poll that receives nothing new. Returns `Pending` if the task has made too many of
    /// these polls and has used up its budget.
    #[inline]
    fn poll_repeat(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.repeat_polls == MAX_FREE_REPEAT_POLLS {
            let taken = budget::poll_take(cx);
            self.repeat_polls =
                if taken.is_ready() { MAX_FREE_REPEAT_POLLS - REPEAT_POLLS_PER_UNIT } else { 0 };
            ready!(taken);
        }
        self.repeat_polls += 1;
        Poll::Ready(())
    }

    #[inline]
    fn advance(&mut self, n: usize) {
        let Some(first) = &mut self.first else { return };
        self.repeat_polls = 0;
        first.advance(n);
        if first.is_empty() {
            self.show_next();
        }
    }

    /// Takes the first `n` of the shown bytes. At least `n` bytes and at least one must be shown.
    fn split_to(&mut self, n: usize) -> Lease {
        match &mut self.first {
            Some(first) if first.len() > n => first.split_to(n),
            _ => self.take().expect("fewer bytes than requested are shown"),
        }
    }

    /// Returns `Ready` once `n` bytes and at least one are shown, or the stream has ended.
    #[inline]
    fn poll_fill(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
        n: usize,
        gather: Gather,
    ) -> Poll<io::Result<()>> {
        if self.first.is_none() {
            ready!(self.poll_first(stream, cx))?;
        }
        // If the stream has ended, it is not polled again, because each such poll uses budget.
        if self.first.is_none() || self.len() >= n {
            return Poll::Ready(Ok(()));
        }
        self.poll_gather(stream, cx, n, gather)
    }

    fn poll_first(&mut self, stream: &StreamHandle, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.first = ready!(self.poll_more(stream, cx))?;
        Poll::Ready(Ok(()))
    }

    /// Receives and copies until `n` bytes are shown or the stream has ended.
    #[cold]
    fn poll_gather(
        &mut self,
        stream: &StreamHandle,
        cx: &Context<'_>,
        n: usize,
        gather: Gather,
    ) -> Poll<io::Result<()>> {
        while self.len() < n {
            let next = match self.take_next() {
                Some(next) => Some(next),
                None => ready!(self.poll_more(stream, cx))?,
            };
            let Some(next) = next else { break };
            match self.first.take() {
                None => self.first = Some(next),
                Some(first) => self.gather(stream, first, next, n, gather)?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Copies bytes of `next` behind `first`, which has fewer than `n` bytes, and keeps the rest of
    /// `next`.
    fn gather(
        &mut self,
        stream: &StreamHandle,
        first: Lease,
        mut next: Lease,
        n: usize,
        gather: Gather,
    ) -> io::Result<()> {
        let missing = n - first.len();
        // If the caller may need more, the copy at least doubles the bytes, so that the cost of
        // repeated copies stays proportional to the number of bytes.
        let (count, wanted) = match gather {
            Gather::Missing => (missing, n),
            Gather::Ahead => (missing.max(first.len()).max(MIN_COPY_AHEAD_BYTES), usize::MAX),
        };
        let count = count.min(next.len());
        // Put `first` back before the borrow, which fails if the runtime has ended.
        let first = self.first.insert(first);
        let meter = match stream.core.borrow() {
            Ok(inner) => inner.state.memory.meter.clone(),
            Err(error) => {
                self.keep_next(next);
                return Err(error);
            }
        };
        first.append(&next[..count], wanted, &meter);
        next.advance(count);
        if !next.is_empty() {
            self.keep_next(next);
        }
        Ok(())
    }
}
