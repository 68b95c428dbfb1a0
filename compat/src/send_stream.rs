//! Streams for libraries that ask for tokio's traits and `Send`.

use crate::OnThread;
use annulus::net::TcpStream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream for libraries that ask for tokio's traits and `Send`. A use on another thread than the one that made it is an error.
#[derive(Debug)]
pub struct SendStream<S = TcpStream>(OnThread<S>);

impl<S> SendStream<S> {
    /// Wraps a stream of this thread.
    pub fn new(stream: S) -> Self {
        Self(OnThread::new(stream))
    }

    /// The stream.
    ///
    /// # Errors
    /// On another thread than the one that made it.
    pub fn try_ref(&self) -> io::Result<&S> {
        Ok(self.0.try_ref()?)
    }

    fn pin(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        Ok(Pin::new(self.get_mut().0.try_mut()?))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SendStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pin()?.poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pin()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin()?.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pin()?.poll_write_vectored(cx, slices)
    }
}
