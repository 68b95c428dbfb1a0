//! Implementations of the traits of `tokio::io` (feature `tokio-io`).

use super::recv::AsyncRecv;
use super::send::AsyncSend;
use crate::fs::FileStream;
use crate::net::{RecvHalf, SendHalf, TcpStream, UnixStream};
use crate::pipe::{Receiver, Sender};
use crate::tasks::budget;
use std::fmt;
use std::io::{self, IoSlice, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

fn poll_read(
    from: &mut impl AsyncRecv,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buf.remaining() == 0 {
        return Poll::Ready(Ok(()));
    }
    let shown = ready!(from.poll_fill_buf(cx))?;
    let count = shown.len().min(buf.remaining());
    buf.put_slice(&shown[..count]);
    from.consume(count);
    Poll::Ready(Ok(()))
}

macro_rules! reads {
    ($($type:ident),*) => {$(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                poll_read(self.get_mut(), cx, buf)
            }
        }

        /// Shows received bytes in place, without a copy.
        impl AsyncBufRead for $type {
            fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
                AsyncRecv::poll_fill_buf(self.get_mut(), cx)
            }

            fn consume(self: Pin<&mut Self>, n: usize) {
                AsyncRecv::consume(self.get_mut(), n);
            }
        }
    )*};
}

macro_rules! writes {
    ($($type:ident),*) => {$(
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                AsyncSend::poll_write(self.get_mut(), cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                AsyncSend::poll_write_vectored(self.get_mut(), cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncSend::poll_flush(self.get_mut(), cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncSend::poll_shutdown(self.get_mut(), cx)
            }
        }
    )*};
}

reads!(TcpStream, UnixStream, RecvHalf, Receiver, FileStream);
writes!(TcpStream, UnixStream, SendHalf, Sender, FileStream);

impl AsyncSeek for FileStream {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.get_mut().start_seek(to)
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        self.get_mut().poll_complete(cx)
    }
}

/// Adapts a stream with the traits of `tokio::io`, such as a TLS session, to the traits of
/// [`annulus::io`](crate::io), so that code that is generic over
/// [`AsyncStream`](super::AsyncStream) can use it. It reads ahead into its own memory, which grows
/// with the number of bytes peeked at.
///
/// Once the stream has ended, [`poll_fill_at_least`](AsyncRecv::poll_fill_at_least) shows the end
/// until [`consume`](AsyncRecv::consume) is called, even with 0. Then the adapter reads again,
/// because growing files and terminals continue after an end. All other methods make that call
/// themselves.
///
/// The adapter does not have the traits of `tokio::io` itself. To go back to them, take the stream
/// out with [`into_parts`](Self::into_parts). Streams of this crate need no adapter. Wrap a stream
/// that is not `Unpin` in `Box::pin` first.
///
/// ```
/// use annulus::io::{AsyncRecv, AsyncSend, FromTokio};
///
/// # annulus::run(async {
/// let (client, server) = tokio::io::duplex(64);
/// let (mut client, server) = (FromTokio::new(client), FromTokio::new(server));
/// client.write_all(b"one\ntwo\n").await?;
/// assert_eq!(server.lines(80).next_line().await?.as_deref(), Some("one"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct FromTokio<S> {
    stream: S,
    ahead: ReadAhead,
}

impl<S> FromTokio<S> {
    /// Adapts a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, ahead: ReadAhead::default() }
    }

    /// Returns the stream. Some of its bytes may have been read ahead.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns the stream and the bytes that were read ahead.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.ahead.into_vec())
    }
}

impl<S: AsyncRead + Unpin> AsyncRecv for FromTokio<S> {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        let Self { stream, ahead } = self;
        while ahead.needs_more(n) {
            ready!(budget::poll_left(cx));
            let count = ready!(read_some(stream, cx, ahead.free()))?;
            _ = budget::poll_take(cx);
            ahead.filled(count);
        }
        Poll::Ready(Ok(ahead.shown()))
    }

    fn consume(&mut self, n: usize) {
        self.ahead.consume(n);
    }
}

impl<S: AsyncWrite + Unpin> AsyncSend for FromTokio<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(budget::poll_left(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        _ = budget::poll_take(cx);
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(budget::poll_left(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        _ = budget::poll_take(cx);
        Poll::Ready(written)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: fmt::Debug> fmt::Debug for FromTokio<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromTokio")
            .field("stream", &self.stream)
            .field("read_ahead", &self.ahead.shown().len())
            .finish()
    }
}

fn read_some(
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    free: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut free = ReadBuf::new(free);
    ready!(Pin::new(stream).poll_read(cx, &mut free))?;
    Poll::Ready(Ok(free.filled().len()))
}

/// Size of the buffer for the first read.
const INITIAL_BYTES: usize = 8 * 1024;

/// Bytes that were read ahead, in memory that grows as needed.
#[derive(Default)]
pub(super) struct ReadAhead {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read reached the end, and nothing has been consumed since.
    ended: bool,
}

impl ReadAhead {
    pub(super) fn shown(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Returns true if more must be read so that at least `n` bytes, and at least one, are shown.
    pub(super) fn needs_more(&self, n: usize) -> bool {
        !self.ended && self.shown().len() < n.max(1)
    }

    /// Returns memory to read into, at least one byte.
    pub(super) fn free(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.memory.len() {
            self.memory.resize((2 * self.end).max(INITIAL_BYTES), 0);
        }
        &mut self.memory[self.end..]
    }

    /// Records that `count` bytes were read into the free memory: 0 at the end of the stream.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        self.ended = count == 0;
    }

    pub(super) fn consume(&mut self, n: usize) {
        let shown = self.shown().len();
        assert!(n <= shown, "consume({n}), but only {shown} bytes are shown");
        self.start += n;
        self.ended = false;
    }

    pub(super) fn into_vec(mut self) -> Vec<u8> {
        self.memory.truncate(self.end);
        self.memory.drain(..self.start);
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(ahead: &mut ReadAhead, bytes: &[u8]) {
        ahead.free()[..bytes.len()].copy_from_slice(bytes);
        ahead.filled(bytes.len());
    }

    #[test]
    fn consumed_memory_is_reused() {
        let mut ahead = ReadAhead::default();
        fill(&mut ahead, &[1; INITIAL_BYTES - 1]);
        fill(&mut ahead, &[2]);
        ahead.consume(INITIAL_BYTES - 2);
        assert_eq!((ahead.free().len(), ahead.shown()), (INITIAL_BYTES - 2, &[1, 2][..]));
        fill(&mut ahead, &[3; INITIAL_BYTES - 2]);
        assert_eq!(
            ahead.free().len(),
            INITIAL_BYTES,
            "memory that is wholly unread did not double"
        );
        assert_eq!(ahead.shown()[..3], [1, 2, 3]);
        ahead.consume(INITIAL_BYTES);
        assert_eq!(ahead.free().len(), 2 * INITIAL_BYTES);
        fill(&mut ahead, &[4, 5, 6]);
        ahead.consume(1);
        assert_eq!(ahead.into_vec(), [5, 6], "the owned memory is not the unread bytes");
    }
}
