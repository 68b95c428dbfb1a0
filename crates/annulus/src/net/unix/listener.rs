//! Listening for Unix connections.

use super::super::listener_handle::ListenerHandle;
use super::super::socket::NewFd;
use super::super::stream_handle::StreamHandle;
use super::path::BoundPath;
use super::{UnixOptions, UnixStream};
use crate::runtime::core::Core;
use std::fmt;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A listening Unix socket. Dropping it removes its path, stops listening and closes connections
/// that `accept` has not returned.
///
/// Most peers have no address. To identify a peer, use [`UnixStream::peer_cred`].
///
/// ```
/// use annulus::net::{UnixListener, UnixStream};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-admin-{}", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// let mut client = UnixStream::connect(&path).await?;
/// let (server, _unnamed) = listener.accept().await?;
/// let peer = server.peer_cred()?;
/// assert_eq!(peer.pid, std::process::id());
/// drop(server);
/// assert!(client.recv().await?.is_none());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnixListener {
    // Dropped first, so that the path never exists without a listener.
    _path: Option<BoundPath>,
    handle: ListenerHandle,
    descriptors: bool,
}

impl UnixListener {
    /// Listens on a path with default [`UnixOptions`]. A path that a dead server left is replaced.
    /// A path that begins with a zero byte, such as `"\0name"`, is an abstract name.
    ///
    /// # Errors
    /// `AddrInUse` if another server is listening or starting at the path, or the path is not a
    /// socket. Before that, it retries for a tenth of a second, like
    /// [`ListenOptions::bind`](crate::net::ListenOptions::bind). `InvalidInput` for more than 107
    /// bytes; `NotFound`, `PermissionDenied`, …, with the path in the message; or outside a
    /// runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixOptions::new().listen(path)
    }

    /// Listens on an address, which may be an abstract name.
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        UnixOptions::new().listen_addr(address)
    }

    pub(in super::super) fn handle(&self) -> &ListenerHandle {
        &self.handle
    }

    /// Takes over a socket that other code has bound. Dropping the listener does not remove the
    /// socket's path.
    pub(in super::super) fn from_elsewhere(core: &Rc<Core>, socket: NewFd) -> io::Result<Self> {
        Ok(Self::new(ListenerHandle::new(core, socket, None)?, None, false))
    }

    pub(super) fn new(handle: ListenerHandle, path: Option<BoundPath>, descriptors: bool) -> Self {
        Self { _path: path, handle, descriptors }
    }

    /// Returns the next connection and its peer's address. Cancel-safe. See
    /// [`TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Errors
    /// The errors of [`TcpListener::accept`](crate::net::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        self.adopt(self.handle.accept().await?)
    }

    /// Polls like [`accept`](Self::accept). A connection wakes every task that polled.
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.handle.poll_accept(cx)?.map(|handle| self.adopt(handle))
    }

    fn adopt(&self, handle: StreamHandle) -> io::Result<(UnixStream, SocketAddr)> {
        let stream = match self.descriptors {
            true => UnixStream::passing_descriptors(handle)?,
            false => UnixStream::new(handle),
        };
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_std_unix())
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixListener").field("local", &self.local_addr().ok()).finish()
    }
}
