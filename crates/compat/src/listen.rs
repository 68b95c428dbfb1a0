//! Listeners that servers accept from.

use annulus::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use annulus::shards::ShardListener;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// A listener that a server accepts connections from. `tower::serve` uses it directly; for
/// `axum::serve` and tonic, wrap it in an `Incoming`.
///
/// A shard's listener ([`ShardListener`]) waits forever once the accepting shard has dropped its
/// own listener. End that server with a graceful shutdown.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus_compat::Listen;
/// use std::io;
/// use std::net::SocketAddr;
/// use std::task::{Context, Poll, ready};
///
/// /// Accepts only connections from this machine.
/// struct LoopbackOnly(TcpListener);
///
/// impl Listen for LoopbackOnly {
///     type Stream = TcpStream;
///     type Peer = SocketAddr;
///
///     fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
///         loop {
///             let (stream, peer) = ready!(self.0.poll_accept(cx))?;
///             if peer.ip().is_loopback() {
///                 return Poll::Ready(Ok((stream, peer)));
///             }
///         }
///     }
///
///     fn local_addr(&self) -> io::Result<SocketAddr> {
///         self.0.local_addr()
///     }
/// }
/// ```
pub trait Listen {
    /// A connection.
    type Stream: 'static;
    /// The peer's address.
    type Peer: 'static;

    /// Returns the next connection. After an error, `tower::serve`, `axum::serve` and tonic's server
    /// wait a second before they call this method again.
    ///
    /// # Errors
    /// Fails if no connection can be accepted now.
    fn poll_accept(&mut self, cx: &mut Context<'_>)
    -> Poll<io::Result<(Self::Stream, Self::Peer)>>;

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    /// Fails if the runtime has ended.
    fn local_addr(&self) -> io::Result<Self::Peer>;
}

impl Listen for TcpListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        Self::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

impl Listen for ShardListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        ready!(Self::poll_accept(self, cx)?)
            .map_or(Poll::Pending, |accepted| Poll::Ready(Ok(accepted)))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local_addr())
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;
    type Peer = std::os::unix::net::SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, Self::Peer)>> {
        Self::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<Self::Peer> {
        self.local_addr()
    }
}

#[cfg(feature = "rustls")]
impl Listen for crate::rustls::TlsListener {
    type Stream = crate::rustls::TlsStream<TcpStream>;
    type Peer = SocketAddr;

    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Self::Stream, SocketAddr)>> {
        Self::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
