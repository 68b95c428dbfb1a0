//! TLS for `axum::serve`.

use super::{TlsListener, TlsStream};
use crate::axum::until_accepted;
use crate::{OnThread, SendStream};
use annulus::net::TcpStream;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;

/// A listener for `axum::serve` whose connections are TLS sessions. It accepts on the thread that made it.
///
/// For HTTP/2 the acceptor must offer `h2` by ALPN, and axum have its feature `http2`.
///
/// ```
/// use annulus::net::TcpListener;
/// use annulus_compat::rustls::{TlsAcceptor, TlsIncoming, TlsListener};
/// use axum::{Router, routing::get};
///
/// async fn serve(certificates: &[u8], key: &[u8]) -> std::io::Result<()> {
///     let acceptor = TlsAcceptor::from_pem(certificates, key, &["h2", "http/1.1"])?;
///     let listener = TlsListener::new(TcpListener::bind("127.0.0.1:0")?, acceptor);
///     let router = Router::new().route("/", get(async || "hello"));
///     axum::serve(TlsIncoming::new(listener), router).await
/// }
/// # drop(serve);
/// ```
#[derive(Debug)]
pub struct TlsIncoming(OnThread<TlsListener>);

impl TlsIncoming {
    /// Accepts from a listener.
    pub fn new(listener: TlsListener) -> Self {
        Self(OnThread::new(listener))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// On another thread than the one that made it, or after the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.try_ref()?.local_addr()
    }
}

impl Listener for TlsIncoming {
    type Io = SendStream<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    /// As that of [`Incoming`](crate::axum::Incoming) on errors.
    ///
    /// # Panics
    /// On another thread than the one that made it.
    fn accept(&mut self) -> impl Future<Output = (Self::Io, SocketAddr)> + Send {
        let listener = self.0.try_mut();
        OnThread::new(async move {
            let listener = listener.unwrap_or_else(|wrong| panic!("{wrong}"));
            until_accepted(async || listener.accept().await).await
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
