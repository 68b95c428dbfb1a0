//! The traits of `futures-io` (feature `futures-io`).

use super::read_ahead::{ReadAhead, adapter};
use super::recv::{AsyncRecv, poll_read};
use super::send::AsyncSend;
use crate::base::budget;
use crate::fs::FileStream;
use crate::net::{Receiver, RecvHalf, SendHalf, Sender, TcpStream, UnixStream};
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
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

        /// Shows received or read bytes where they are: nothing is copied.
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

/// A stream that has the traits of `futures-io`, such as a TLS session, as one with those of [`annulus::io`](crate::io): code that is generic over
/// [`AsyncStream`](super::AsyncStream) runs over it, too. It reads ahead into memory of its own, which grows with the bytes peeked at. The
/// traits that the stream has stay. Its end is final until [`consume`](AsyncRecv::consume) is called, also with 0, as every read does: a
/// file that grows and a terminal go on.
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

adapter!(FromFutures, poll_close);

fn read_some(
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    free: &mut [u8],
) -> Poll<io::Result<usize>> {
    Pin::new(stream).poll_read(cx, free)
}
