//! A writer that gathers small writes.

use super::{AsyncRecv, AsyncSend};
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use std::fmt;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// Gathers small writes in a buffer, and passes them on together.
///
/// Writes to a stream of this crate that are made in one turn of the loop leave together anyway. This one gathers them over several
/// turns, and for sinks of which each write costs, such as a TLS session.
///
/// The bytes are passed on
///
/// - by [`flush`](AsyncSend::flush) and [`shutdown`](AsyncSend::shutdown),
/// - before a write that does not fit the buffer any more; one that never fits goes on behind them without being gathered,
/// - before a chunk that is [sent](AsyncSend::send), which goes on behind them without a copy,
///
/// and at no other time. If the writer is dropped before, they are lost, as [`buffered`](Self::buffered) tells. Receiving goes through it,
/// unchanged.
///
/// ```
/// use annulus::io::{AsyncSend, BufWriter};
///
/// # annulus::run(async {
/// let mut writer = BufWriter::new(Vec::new());
/// for number in 1..=3 {
///     writer.write_all(format!("{number}\n").as_bytes()).await?;
/// }
/// assert_eq!((writer.buffered(), writer.get_ref().len()), (6, 0));
/// writer.flush().await?;
/// assert_eq!(writer.into_inner(), b"1\n2\n3\n");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # What dropping a future does
///
/// As of the methods of [`AsyncSend`]: a write that was dropped unready has accepted nothing; a flush goes on with the next call.
pub struct BufWriter<W> {
    to: W,
    buf: Vec<u8>,
    /// Bytes of `buf` that were passed on.
    sent: usize,
    capacity: usize,
}

impl<W> BufWriter<W> {
    /// Gathers up to 8 KiB: as many as a stream of this crate sends without another copy.
    pub fn new(to: W) -> Self {
        Self::with_capacity(8 * 1024, to)
    }

    /// Gathers up to so many bytes; with 0, every write is passed on at once. The memory is taken with the first write.
    pub fn with_capacity(capacity: usize, to: W) -> Self {
        Self { to, buf: Vec::new(), sent: 0, capacity }
    }

    /// Bytes that were accepted here and not passed on.
    pub fn buffered(&self) -> usize {
        self.buf.len() - self.sent
    }

    /// What the bytes are passed on to.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// As [`get_ref`](Self::get_ref). What is written there goes in front of the bytes that are buffered.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// What the bytes are passed on to. Those that are buffered are lost: [flush](AsyncSend::flush) before.
    pub fn into_inner(self) -> W {
        self.to
    }

    /// Whether so many more bytes fit.
    fn fits(&self, count: usize) -> bool {
        count <= self.capacity - self.buf.len()
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.buf.capacity() == 0 {
            self.buf.reserve_exact(self.capacity);
        }
        self.buf.extend_from_slice(bytes);
    }
}

impl<W: AsyncSend> BufWriter<W> {
    /// Passes everything on that is buffered.
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.buf.len() {
            match ready!(self.to.poll_write(cx, &self.buf[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        self.buf.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncSend> AsyncSend for BufWriter<W> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total = slices.iter().map(|slice| slice.len()).sum();
        if !self.fits(total) {
            ready!(self.poll_pass_on(cx))?;
        }
        if !self.fits(total) {
            return self.to.poll_write_vectored(cx, slices);
        }
        slices.iter().for_each(|slice| self.append(slice));
        Poll::Ready(Ok(total))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        self.to.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        self.to.poll_shutdown(cx)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        self.to.poll_send(cx, chunk)
    }
}

impl<W: AsyncRecv> AsyncRecv for BufWriter<W> {
    fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        self.to.poll_peek(cx, n)
    }

    fn consume(&mut self, n: usize) {
        self.to.consume(n);
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.to.poll_recv(cx)
    }

    fn poll_recv_exact(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<Lease>> {
        self.to.poll_recv_exact(cx, n)
    }
}

impl<W> fmt::Debug for BufWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufWriter({} of {} bytes)", self.buffered(), self.capacity)
    }
}
