//! `annulus::io` traits and `Stream` for `OnThread`, with a thread check on each use.

use crate::OnThread;
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::{Chunk, Lease};
use std::io::{self, IoSlice};
#[cfg(any(feature = "tower", feature = "tonic-transport"))]
use std::pin::Pin;
use std::task::{Context, Poll};

/// On a thread other than the one that created it, reads return an error, and `consume` panics
/// unless `n` is 0.
impl<S: AsyncRecv + Unpin> AsyncRecv for OnThread<S> {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        self.try_mut()?.poll_fill_at_least(cx, n)
    }

    fn consume(&mut self, n: usize) {
        match self.try_mut() {
            Ok(stream) => stream.consume(n),
            Err(wrong) => assert_eq!(n, 0, "{wrong}; there are no bytes to consume here"),
        }
    }

    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.try_mut()?.poll_fill_buf(cx)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.try_mut()?.poll_recv(cx)
    }

    fn poll_recv_exact(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<Lease>> {
        self.try_mut()?.poll_recv_exact(cx, n)
    }
}

/// On a thread other than the one that created it, every operation is an error.
impl<S: AsyncSend + Unpin> AsyncSend for OnThread<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.try_mut()?.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.try_mut()?.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.try_mut()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.try_mut()?.poll_write_vectored(cx, slices)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        self.try_mut()?.poll_send(cx, chunk)
    }
}

/// Panics if polled on a thread other than the one that created it.
#[cfg(any(feature = "tower", feature = "tonic-transport"))]
impl<S: futures_core::Stream> futures_core::Stream for OnThread<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        match self.get_mut().try_pin() {
            Ok(stream) => stream.poll_next(cx),
            Err(wrong) => panic!("{wrong}"),
        }
    }
}
