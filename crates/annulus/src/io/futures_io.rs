//! The traits of `futures-io` (feature `futures-io`).

use super::recv::{AsyncRecv, poll_read};
use super::send::AsyncSend;
use crate::fs::FileStream;
use crate::net::{Receiver, RecvHalf, SendHalf, Sender, TcpStream, UnixStream};
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
use std::io::{self, IoSlice, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

macro_rules! reads {
    ($($type:ident)*) => {$(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                poll_read(self.get_mut(), cx, buf)
            }
        }

        /// Shows what was received or read where it is: nothing is copied.
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
    ($($type:ident)*) => {$(
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

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncSend::poll_flush(self.get_mut(), cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncSend::poll_shutdown(self.get_mut(), cx)
            }
        }
    )*};
}

reads!(TcpStream UnixStream RecvHalf Receiver FileStream);
writes!(TcpStream UnixStream SendHalf Sender FileStream);

impl AsyncSeek for FileStream {
    fn poll_seek(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        self.get_mut().poll_seek(cx, to)
    }
}
