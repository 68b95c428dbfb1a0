//! A connection between two processes of a host.

use super::super::split::{RecvHalf, SendHalf};
use super::super::stream_handle::{AsSocket, SendFuture, Socket};
use super::UnixOptions;
use super::address::to_std;
use crate::chunk::Chunk;
use crate::lease::Lease;
use annulus_kernel::Credentials;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A Unix stream: see [`TcpStream`](crate::net::TcpStream) for the rules, which are the same.
pub struct UnixStream {
    socket: Socket,
}

impl UnixStream {
    /// Connects to a path with default [`UnixOptions`]. Waits where the listener's backlog is full.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused` (nobody listens), …, naming the path; or outside a runtime.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixOptions::new().connect(path).await
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        UnixOptions::new().connect_addr(address).await
    }

    /// Two streams, connected to each other.
    ///
    /// # Errors
    /// Out of descriptors, or outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixOptions::new().pair()
    }

    pub(super) fn new(socket: Socket) -> Self {
        Self { socket }
    }

    /// The next bytes, at least one of them; `None` at the end of the stream. Cancel-safe. Descriptors that came along are
    /// closed.
    ///
    /// # Errors
    /// `ConnectionReset`, …, after all bytes that came before it.
    #[inline]
    pub async fn recv(&mut self) -> io::Result<Option<Lease>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), by polling.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.socket.poll_recv(cx)
    }

    /// The next bytes, and the descriptors that came with them. Cancel-safe.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); `Unsupported` where the stream was not made to pass
    /// [`descriptors`](UnixOptions::descriptors).
    pub async fn recv_with_descriptors(&mut self) -> io::Result<Option<(Lease, Vec<OwnedFd>)>> {
        self.check_passing()?;
        let Some(bytes) = self.recv().await? else { return Ok(None) };
        let inner = &mut *self.socket.core.enter()?;
        let descriptors = inner.streams.get(self.socket.slot).0.take_descriptors();
        Ok(Some((bytes, descriptors)))
    }

    /// Sends all of a chunk: see [`TcpStream::send`](crate::net::TcpStream::send).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send(&mut self, chunk: impl Into<Chunk>) -> SendFuture<'_> {
        self.socket.send(chunk.into())
    }

    /// Sends several chunks, in order, as one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_vectored<C: Into<Chunk>>(
        &mut self,
        chunks: impl IntoIterator<Item = C>,
    ) -> io::Result<()> {
        self.socket.send_all(chunks.into_iter().map(Into::into)).await
    }

    /// Sends all of a chunk, and with its first byte descriptors, which stay open here until that is done.
    ///
    /// # Errors
    /// As [`send`](Self::send); `InvalidInput` for an empty chunk or more than 253 descriptors; `Unsupported` where the
    /// stream was not made to pass [`descriptors`](UnixOptions::descriptors).
    pub async fn send_with_descriptors(
        &mut self,
        chunk: impl Into<Chunk>,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        self.check_passing()?;
        let chunk = chunk.into();
        if chunk.is_empty() {
            let text = "descriptors travel with a byte at least; send one along";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.socket.send(chunk.with_descriptors(descriptors)?).await
    }

    /// Copies as many bytes as the send bound leaves room for; they leave with the turn. Waits where there is no room.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, bytes)
    }

    /// Waits until the kernel has taken everything that was sent. Cancel-safe.
    ///
    /// # Errors
    /// What a send ran into; from then on every time.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// As [`flush`](Self::flush), by polling.
    ///
    /// # Errors
    /// As there.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_flush(cx)
    }

    /// Ends the sending half once everything has gone. Receiving goes on. Cancel-safe.
    ///
    /// # Errors
    /// What a send ran into.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }

    /// As [`shutdown`](Self::shutdown), by polling.
    ///
    /// # Errors
    /// As there.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_shutdown(cx)
    }

    /// Discards what is still to be sent and closes at once.
    pub fn abort(self) {
        self.socket.abort();
    }

    /// Parts the two directions, to be used by two tasks: see [`TcpStream::split`](crate::net::TcpStream::split).
    pub fn split(self) -> (RecvHalf, SendHalf) {
        let socket = Rc::new(self.socket);
        (RecvHalf::new(socket.clone()), SendHalf::new(socket))
    }

    /// Who is at the other end: the process that connected, listened, or made the pair, as it was then.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn peer_cred(&self) -> io::Result<Credentials> {
        self.socket.with_fd(|kernel, fd| kernel.peer_credentials(fd))
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// Where the peer has gone, or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with_fd(|kernel, fd| to_std(&kernel.peer_address(fd)?))
    }

    /// The address at this end.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with_fd(|kernel, fd| to_std(&kernel.local_address(fd)?))
    }

    fn check_passing(&self) -> io::Result<()> {
        if self.socket.core.enter()?.streams.get(self.socket.slot).0.passes_descriptors() {
            return Ok(());
        }
        let text = "this stream passes no descriptors; make it with UnixOptions::descriptors";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

impl AsSocket for UnixStream {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixStream")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}
