//! A listener that runs handshakes concurrently.

use super::{TlsAcceptor, TlsStream};
use annulus::net::{TcpListener, TcpStream};
use annulus::task::JoinSet;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

const DEFAULT_MAX_HANDSHAKES: usize = 256;

type Handshaken = (io::Result<TlsStream<TcpStream>>, SocketAddr);

/// A listener that returns connections after their handshake, for servers with a single accept
/// loop, such as `axum::serve`.
///
/// Each handshake runs in its own task, so a slow client does not delay others. A server that
/// spawns a task for each connection needs only a [`TlsAcceptor`], which that task calls.
///
/// ```
/// use annulus::io::{AsyncRecv, AsyncSend};
/// use annulus::net::TcpListener;
/// use annulus_compat::rustls::{TlsAcceptor, TlsListener};
///
/// async fn serve(listener: TcpListener, acceptor: TlsAcceptor) -> std::io::Result<()> {
///     let failed = |peer, error| eprintln!("{peer}: {error}");
///     let mut listener = TlsListener::new(listener, acceptor).on_failure(failed);
///     loop {
///         let (mut stream, _peer) = listener.accept().await?;
///         annulus::spawn(async move { stream.send("hello").await });
///     }
/// }
/// # drop(serve);
/// ```
pub struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Handshaken>,
    limit: usize,
    failed: Box<dyn FnMut(SocketAddr, io::Error)>,
}

impl TlsListener {
    /// Accepts connections from a listener and performs their handshakes with an acceptor.
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        let failed = Box::new(|_, _| ());
        Self {
            listener,
            acceptor,
            handshakes: JoinSet::new(),
            limit: DEFAULT_MAX_HANDSHAKES,
            failed,
        }
    }

    /// Sets the maximum number of concurrent handshakes, including finished ones that `accept` has
    /// not returned yet. The default is 256. At the limit, the listener stops accepting. The
    /// acceptor's timeout applies to each handshake. This limit bounds the memory that silent
    /// clients use; when they reach it, other clients have to wait.
    ///
    /// # Panics
    /// Panics if it is 0.
    #[must_use]
    pub fn handshakes(mut self, limit: usize) -> Self {
        assert!(limit > 0, "a limit of 0 handshakes accepts no connections: allow at least 1");
        self.limit = limit;
        self
    }

    /// Sets a callback for failed handshakes, which gets the client's address and the error.
    /// Without it, errors are dropped.
    #[must_use]
    pub fn on_failure(mut self, failed: impl FnMut(SocketAddr, io::Error) + 'static) -> Self {
        self.failed = Box::new(failed);
        self
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    /// Fails if the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the next connection whose handshake succeeded, in the order in which handshakes
    /// finish.
    ///
    /// Cancel-safe: handshakes continue if the future is dropped. Dropping the listener closes the
    /// connections that have not been returned.
    ///
    /// # Errors
    /// Fails as [`TcpListener::accept`] does. A failed handshake is not an error of this call: see
    /// [`on_failure`](Self::on_failure).
    pub async fn accept(&mut self) -> io::Result<(TlsStream<TcpStream>, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Polls for the next connection, like [`accept`](Self::accept).
    ///
    /// # Errors
    /// Fails as [`accept`](Self::accept) does.
    pub fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(TlsStream<TcpStream>, SocketAddr)>> {
        loop {
            match self.handshakes.poll_join_next(cx) {
                Poll::Ready(Some(Ok((Ok(stream), peer)))) => {
                    return Poll::Ready(Ok((stream, peer)));
                }
                Poll::Ready(Some(Ok((Err(error), peer)))) => (self.failed)(peer, error),
                // The handshake panicked, so its connection is gone.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Pending if self.handshakes.len() >= self.limit => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => {
                    let (stream, peer) = ready!(self.listener.poll_accept(cx))?;
                    let acceptor = self.acceptor.clone();
                    self.handshakes.spawn(async move { (acceptor.accept(stream).await, peer) });
                }
            }
        }
    }
}

impl std::fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsListener")
            .field("listener", &self.listener)
            .field("handshakes", &self.handshakes.len())
            .finish_non_exhaustive()
    }
}
