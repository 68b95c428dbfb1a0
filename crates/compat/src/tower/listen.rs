//! Listeners that connections are accepted from.

use annulus::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A listener that a server accepts connections from.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus_compat::tower::Listen;
/// use std::io;
/// use std::task::{Context, Poll, ready};
///
/// /// Refuses what does not come from this machine.
/// struct LoopbackOnly(TcpListener);
///
/// impl Listen for LoopbackOnly {
///     type Stream = TcpStream;
///     type Peer = std::net::SocketAddr;
///
///     fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, Self::Peer)>> {
///         loop {
///             let (stream, peer) = ready!(self.0.poll_accept(cx))?;
///             if peer.ip().is_loopback() {
///                 return Poll::Ready(Ok((stream, peer)));
///             }
///         }
///     }
/// }
/// ```
pub trait Listen {
    /// A connection.
    type Stream: 'static;
    /// The other end's address.
    type Peer: 'static;

    /// The next connection. After an error the server calls it again a second later.
    ///
    /// # Errors
    /// If none can be accepted now.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Stream, Self::Peer)>>;
}

impl Listen for TcpListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.poll_accept(cx)
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;
    type Peer = std::os::unix::net::SocketAddr;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, Self::Peer)>> {
        self.poll_accept(cx)
    }
}
