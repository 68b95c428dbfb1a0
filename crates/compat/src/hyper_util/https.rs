//! Connects with or without TLS, depending on the URI.

use super::connector::{Connecting, Connector, ends};
use crate::OnThread;
use crate::hyper::Io;
use crate::rustls::{TlsConnector, TlsStream};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::TcpStream;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use tower_service::Service;

/// Connects to `https://` URIs over TLS, and to `http://` URIs without it, unless that is
/// [forbidden](Self::https_only). It uses HTTP/2 if the TLS settings offer `h2` by ALPN and the
/// server chooses it.
///
/// ```no_run
/// use annulus_compat::hyper::{Executor, Timer};
/// use annulus_compat::hyper_util::{Connector, HttpsConnector};
/// use annulus_compat::rustls::TlsConnector;
/// use bytes::Bytes;
/// use http_body_util::Empty;
/// use hyper_util::client::legacy::Client;
/// use std::time::Duration;
///
/// fn client(mut config: rustls::ClientConfig) -> Client<HttpsConnector, Empty<Bytes>> {
///     config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
///     let tcp = Connector::new().timeout(Duration::from_secs(5));
///     let connector = HttpsConnector::new(TlsConnector::new(config)).connector(tcp);
///     Client::builder(Executor).timer(Timer::new()).pool_timer(Timer::new()).build(connector)
/// }
/// ```
///
/// The timeouts of the two connectors apply one after the other: first TCP, then the handshake.
/// Dropping the future closes the connection.
#[derive(Clone, Debug)]
pub struct HttpsConnector {
    tcp: Connector,
    tls: TlsConnector,
    https_only: bool,
}

impl HttpsConnector {
    /// Creates a connector with these TLS settings and default TCP settings.
    pub fn new(tls: TlsConnector) -> Self {
        Self { tcp: Connector::new().enforce_http(false), tls, https_only: false }
    }

    /// Sets the TCP connector.
    pub fn connector(mut self, tcp: Connector) -> Self {
        self.tcp = tcp.enforce_http(false);
        self
    }

    /// Sets whether an `http` URI is an error. By default it is not.
    pub fn https_only(mut self, on: bool) -> Self {
        self.https_only = on;
        self
    }

    async fn connect(self, uri: Uri) -> io::Result<Io<OnThread<MaybeTls>>> {
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if !self.https_only => false,
            _ => {
                let schemes = if self.https_only { "https" } else { "https or http" };
                let text = format!("{uri}: this connector accepts only full {schemes} URIs");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let (host, port) = self.tcp.target(&uri)?;
        let stream = self.tcp.open(&host, port).await?;
        let stream = match is_tls {
            true => MaybeTls::Tls(Box::new(self.tls.connect(&host, stream).await?)),
            false => MaybeTls::Plain(stream),
        };
        Ok(self.tcp.io(stream))
    }
}

impl Service<Uri> for HttpsConnector {
    type Response = Io<OnThread<MaybeTls>>;
    type Error = io::Error;
    type Future = Connecting<MaybeTls>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting<MaybeTls> {
        Connecting::new(self.clone().connect(uri))
    }
}

/// A connection of an [`HttpsConnector`].
#[derive(Debug)]
pub enum MaybeTls {
    /// Without TLS.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Io<OnThread<MaybeTls>> {
    fn connected(&self) -> Connected {
        let Ok(stream) = self.inner().try_ref() else { return Connected::new() };
        match stream {
            MaybeTls::Plain(stream) => ends(stream),
            MaybeTls::Tls(session) => {
                let connected = ends(session.get_ref());
                match session.alpn_protocol() {
                    Some(b"h2") => connected.negotiated_h2(),
                    _ => connected,
                }
            }
        }
    }
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            Self::Plain($stream) => $call,
            Self::Tls($stream) => $call,
        }
    };
}

impl AsyncRecv for MaybeTls {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        either!(self, stream => stream.poll_fill_at_least(cx, n))
    }

    fn consume(&mut self, n: usize) {
        either!(self, stream => stream.consume(n));
    }
}

impl AsyncSend for MaybeTls {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => AsyncSend::poll_flush(&mut *stream, cx))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => AsyncSend::poll_shutdown(&mut *stream, cx))
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(cx, slices))
    }
}
