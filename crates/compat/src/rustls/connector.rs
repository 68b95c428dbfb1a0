//! The client's side of a handshake.

use super::{HANDSHAKE_TIMEOUT, TlsStream, no_end_within};
use crate::limit::within;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Makes sessions of clients. A clone shares the settings, and the tickets by which later sessions start faster.
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
    /// A connector with settings of rustls: which roots to trust, ALPN, a certificate of the client.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self { connector: config.into().into(), limit: HANDSHAKE_TIMEOUT }
    }

    /// The settings of rustls.
    pub fn config(&self) -> &Arc<ClientConfig> {
        self.connector.config()
    }

    /// How long a handshake may take: 10 s by default. `None` is without limit.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Makes a session with a server, whose certificate must be for `name`: a DNS name or an address.
    ///
    /// Dropping the future closes the stream.
    ///
    /// # Errors
    /// `InvalidInput`, naming it, for a name that is neither. `TimedOut` after the limit. `InvalidData` with a [`rustls::Error`] inside if
    /// the server cannot be trusted, refuses this client, or does not speak TLS. `UnexpectedEof` if the stream ends in the handshake. And
    /// those of the stream.
    ///
    /// [`rustls::Error`]: tokio_rustls::rustls::Error
    pub async fn connect<S>(&self, name: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            let text = format!(
                "{name:?} is neither a DNS name nor an address, as a server's name must be"
            );
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
