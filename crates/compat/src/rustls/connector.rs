//! The client's side of a handshake.

use super::{HANDSHAKE_TIMEOUT, TlsStream, no_end_within};
use crate::limit::within;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Performs client-side TLS handshakes. Clones share the settings, and the session tickets that
/// speed up later handshakes.
///
/// ```no_run
/// use annulus::io::{AsyncRecv, AsyncSend};
/// use annulus::net::TcpStream;
/// use annulus_compat::rustls::TlsConnector;
///
/// async fn head(config: rustls::ClientConfig) -> std::io::Result<String> {
///     let stream = TcpStream::connect("example.org:443").await?;
///     let mut stream = TlsConnector::new(config).connect("example.org", stream).await?;
///     stream.send("HEAD / HTTP/1.0\r\nhost: example.org\r\n\r\n").await?;
///     let mut status = String::new();
///     stream.read_line(&mut status, 1024).await?;
///     Ok(status)
/// }
/// ```
#[derive(Clone)]
pub struct TlsConnector {
    connector: tokio_rustls::TlsConnector,
    limit: Option<Duration>,
}

impl TlsConnector {
    /// Creates a connector with rustls settings: trusted roots, ALPN, a client certificate.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self { connector: config.into().into(), limit: HANDSHAKE_TIMEOUT }
    }

    /// Returns the rustls settings.
    pub fn config(&self) -> &Arc<ClientConfig> {
        self.connector.config()
    }

    /// Sets how long a handshake may take. The default is 10 s; `None` means no limit.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Performs the handshake with a server, whose certificate must be valid for `name`, a DNS name
    /// or an IP address.
    ///
    /// Dropping the future closes the stream.
    ///
    /// # Errors
    /// Fails with `InvalidInput` and the name if `name` is neither, and with `TimedOut` after the
    /// limit. The error is `InvalidData` with a [`rustls::Error`] inside if the server is not
    /// trusted, rejects this client, or does not speak TLS. It is `UnexpectedEof` if the stream
    /// ends during the handshake. Errors of the stream are passed on.
    ///
    /// [`rustls::Error`]: tokio_rustls::rustls::Error
    pub async fn connect<S>(&self, name: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            let text =
                format!("{name:?} is not a valid server name: use a DNS name or an IP address");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let handshake = self.connector.connect(server, stream);
        Ok(within(self.limit, handshake, no_end_within).await?.into())
    }
}

impl std::fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsConnector").field("limit", &self.limit).finish_non_exhaustive()
    }
}
