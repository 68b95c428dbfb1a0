//! Listening for Unix connections.

use super::super::listener_handle::Acceptor;
use super::super::stream_handle::Socket;
use super::address::to_std;
use super::path::BoundPath;
use super::{UnixOptions, UnixStream};
use std::fmt;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

/// A listening Unix socket. Dropping it stops listening and removes its path; connections it had accepted and nobody
/// claimed are closed.
pub struct UnixListener {
    // First: while the path is there, somebody listens.
    _path: Option<BoundPath>,
    acceptor: Acceptor,
    descriptors: bool,
}

impl UnixListener {
    /// Listens on a path with default [`UnixOptions`]. A path that a dead server has left is taken over.
    ///
    /// # Errors
    /// `AddrInUse` where somebody listens there, or starts to, or where the path is no socket; `InvalidInput` for more than 107 bytes;
    /// `NotFound`, `PermissionDenied`, …, naming the path; or outside a runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixOptions::new().listen(path)
    }

    /// Listens on an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        UnixOptions::new().listen_addr(address)
    }

    pub(super) fn new(acceptor: Acceptor, path: Option<BoundPath>, descriptors: bool) -> Self {
        Self { _path: path, acceptor, descriptors }
    }

    /// The next connection, and who it is from: mostly nobody with a name. See [`UnixStream::peer_cred`].
    ///
    /// Cancel-safe: the accept belongs to the listener; dropping the future loses no connection. Several tasks may wait
    /// at once. Running out of descriptors is no error here: the listener pauses until one is closed.
    ///
    /// # Errors
    /// What makes the listener useless; or after the runtime's end.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        self.adopt(self.acceptor.accept().await?)
    }

    /// As [`accept`](Self::accept), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let socket = ready!(self.acceptor.poll_accept(cx))?;
        Poll::Ready(self.adopt(socket))
    }

    fn adopt(&self, socket: Socket) -> io::Result<(UnixStream, SocketAddr)> {
        if self.descriptors {
            socket.core.enter()?.streams.get(socket.slot).0.pass_descriptors();
        }
        let stream = UnixStream::new(socket);
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.acceptor.with_fd(|kernel, fd| to_std(&kernel.local_address(fd)?))
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixListener").field("local", &self.local_addr().ok()).finish()
    }
}
