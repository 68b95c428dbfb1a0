//! The two directions of a connection, for two tasks.

use super::stream_handle::{SendFuture, Socket};
use crate::chunk::Chunk;
use crate::lease::Lease;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The receiving half of a [`TcpStream`](super::TcpStream).
pub struct RecvHalf {
    socket: Rc<Socket>,
}

impl RecvHalf {
    pub(super) fn new(socket: Rc<Socket>) -> Self {
        Self { socket }
    }

    /// See [`TcpStream::recv`](super::TcpStream::recv).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub async fn recv(&mut self) -> io::Result<Option<Lease>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// See [`TcpStream::poll_recv`](super::TcpStream::poll_recv).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.socket.poll_recv(cx)
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// Where the peer has gone, or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }
}

/// The sending half of a [`TcpStream`](super::TcpStream). Dropping it ends the sending side once all has gone.
pub struct SendHalf {
    socket: Rc<Socket>,
}

impl SendHalf {
    pub(super) fn new(socket: Rc<Socket>) -> Self {
        Self { socket }
    }

    /// See [`TcpStream::send`](super::TcpStream::send).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send(&mut self, chunk: impl Into<Chunk>) -> SendFuture<'_> {
        self.socket.send(chunk.into())
    }

    /// See [`TcpStream::send_vectored`](super::TcpStream::send_vectored).
    ///
    /// # Errors
    /// As there.
    pub async fn send_vectored<C: Into<Chunk>>(
        &mut self,
        chunks: impl IntoIterator<Item = C>,
    ) -> io::Result<()> {
        self.socket.send_all(chunks.into_iter().map(Into::into)).await
    }

    /// See [`TcpStream::poll_write`](super::TcpStream::poll_write).
    ///
    /// # Errors
    /// As there.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, bytes)
    }

    /// See [`TcpStream::flush`](super::TcpStream::flush).
    ///
    /// # Errors
    /// As there.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// See [`TcpStream::poll_flush`](super::TcpStream::poll_flush).
    ///
    /// # Errors
    /// As there.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_flush(cx)
    }

    /// See [`TcpStream::shutdown`](super::TcpStream::shutdown).
    ///
    /// # Errors
    /// As there.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }

    /// See [`TcpStream::poll_shutdown`](super::TcpStream::poll_shutdown).
    ///
    /// # Errors
    /// As there.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_shutdown(cx)
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.socket.core.enter() {
            let inner = &mut *inner;
            inner.streams.get(self.socket.slot).0.end_when_sent(&mut inner.io);
        }
    }
}

impl fmt::Debug for RecvHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvHalf")
    }
}

impl fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendHalf")
    }
}
