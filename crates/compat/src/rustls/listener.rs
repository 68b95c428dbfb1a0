//! Handshakes beside each other, behind one `accept`.

use super::{TlsAcceptor, TlsStream};
use annulus::JoinSet;
use annulus::net::{TcpListener, TcpStream};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// The most handshakes under way, unless another limit is set.
const HANDSHAKES: usize = 256;

type Handshaken = (io::Result<TlsStream<TcpStream>>, SocketAddr);

/// A listener whose connections have ended their handshake: for servers that accept in one place, as `axum::serve` does.
///
/// Each handshake is a task of its own, so that a slow client delays no other. A server that spawns a task for each connection needs
/// only a [`TlsAcceptor`], which that task calls.
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
    /// Accepts from a listener, and makes sessions by an acceptor.
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        let failed = Box::new(|_, _| ());
        Self { listener, acceptor, handshakes: JoinSet::new(), limit: HANDSHAKES, failed }
    }

    /// The most handshakes under way, those included that have ended and wait for `accept`; 256 by default. Above it no connection is
    /// accepted. Each has a time limit of the acceptor, so this one bounds the memory of clients that are silent, and how many of them
    /// delay the rest.
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    pub fn handshakes(mut self, limit: usize) -> Self {
        assert!(limit > 0, "a limit of 0 handshakes accepts no connection: at least 1");
        self.limit = limit;
        self
    }

    /// Calls a function for each handshake that has failed, with the client's address. Otherwise the error is dropped with the connection.
    #[must_use]
    pub fn on_failure(mut self, failed: impl FnMut(SocketAddr, io::Error) + 'static) -> Self {
        self.failed = Box::new(failed);
        self
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next session, in the order in which handshakes end.
    ///
    /// Cancel-safe: handshakes go on if the future is dropped. Dropping the listener closes the connections that were not returned.
    ///
    /// # Errors
    /// As [`TcpListener::accept`]. A handshake that fails is no error of this call: see [`on_failure`](Self::on_failure).
    pub async fn accept(&mut self) -> io::Result<(TlsStream<TcpStream>, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), by polling.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
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
                // The handshake has panicked: its connection has ended.
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
