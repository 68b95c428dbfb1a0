//! The traits of `futures-io` (feature `futures-io`).

use super::read_ahead::ReadAhead;
use super::recv::{AsyncRecv, poll_read};
use super::send::AsyncSend;
use crate::fs::FileStream;
use crate::net::{Receiver, RecvHalf, SendHalf, Sender, TcpStream, UnixStream};
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
use std::fmt;
use std::io::{self, IoSlice, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

macro_rules! reads {
    ($($type:ident $(<$s:ident>)?),*) => {$(
        impl$(<$s: AsyncRead + Unpin>)? AsyncRead for $type$(<$s>)? {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                poll_read(self.get_mut(), cx, buf)
            }
        }

        /// Shows what was received or read where it is: nothing is copied.
        impl$(<$s: AsyncRead + Unpin>)? AsyncBufRead for $type$(<$s>)? {
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
    ($($type:ident $(<$s:ident>)?),*) => {$(
        impl$(<$s: AsyncWrite + Unpin>)? AsyncWrite for $type$(<$s>)? {
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

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncSend::poll_flush(self.get_mut(), cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncSend::poll_shutdown(self.get_mut(), cx)
            }
        }
    )*};
}

reads!(TcpStream, UnixStream, RecvHalf, Receiver, FileStream, FromFutures<S>);
writes!(TcpStream, UnixStream, SendHalf, Sender, FileStream, FromFutures<S>);

impl AsyncSeek for FileStream {
    fn poll_seek(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        self.get_mut().poll_seek(cx, to)
    }
}

/// A stream that has the traits of `futures-io`, such as a TLS session, as one with those of [`annulus::io`](crate::io): what is generic over
/// [`AsyncStream`](super::AsyncStream) runs over it, too. It reads ahead into memory of its own, which grows with what is peeked at. The
/// traits that the stream has stay.
///
/// Streams of this crate need no adapter. A stream that is not `Unpin` is put into a `Box::pin` first.
///
/// ```
/// use annulus::io::{AsyncRecv, FromFutures};
///
/// # annulus::run(async {
/// let text = futures_util::io::Cursor::new("one\ntwo\n");
/// let mut lines = FromFutures::new(text).lines(80);
/// assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct FromFutures<S> {
    stream: S,
    ahead: ReadAhead,
}

impl<S> FromFutures<S> {
    /// Adapts a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, ahead: ReadAhead::default() }
    }

    /// The stream. Bytes of it may have been read ahead.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream, and what was read ahead of it.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.ahead.shown().to_vec())
    }
}

impl<S: AsyncRead + Unpin> AsyncRecv for FromFutures<S> {
    fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        while self.ahead.wants(n) {
            let count = ready!(Pin::new(&mut self.stream).poll_read(cx, self.ahead.free()))?;
            self.ahead.filled(count);
        }
        Poll::Ready(Ok(self.ahead.shown()))
    }

    fn consume(&mut self, n: usize) {
        self.ahead.consume(n);
    }
}

impl<S: AsyncWrite + Unpin> AsyncSend for FromFutures<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

impl<S: fmt::Debug> fmt::Debug for FromFutures<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFutures")
            .field("stream", &self.stream)
            .field("read_ahead", &self.ahead.shown().len())
            .finish()
    }
}
