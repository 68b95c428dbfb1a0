//! The server's side of a handshake.

use super::{HANDSHAKE_TIMEOUT, TlsStream, no_end_within};
use crate::limit::within;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Performs server-side TLS handshakes. Clones share the settings.
///
/// ```
/// use annulus::io::{AsyncRecv, AsyncSend};
/// use annulus::net::TcpListener;
/// use annulus_compat::rustls::TlsAcceptor;
///
/// async fn serve(listener: TcpListener, acceptor: TlsAcceptor) -> std::io::Result<()> {
///     loop {
///         let (stream, peer) = listener.accept().await?;
///         let acceptor = acceptor.clone();
///         // Its own task, so that a slow handshake does not delay others.
///         annulus::spawn(async move {
///             match acceptor.accept(stream).await {
///                 Ok(mut stream) => _ = stream.send("hello").await,
///                 Err(error) => eprintln!("{peer}: {error}"),
///             }
///         });
///     }
/// }
/// # drop(serve);
/// ```
#[derive(Clone)]
pub struct TlsAcceptor {
    acceptor: tokio_rustls::TlsAcceptor,
    limit: Option<Duration>,
}

impl TlsAcceptor {
    /// Creates an acceptor with rustls settings: certificates, ALPN, trusted clients.
    pub fn new(config: impl Into<Arc<ServerConfig>>) -> Self {
        Self { acceptor: config.into().into(), limit: HANDSHAKE_TIMEOUT }
    }

    /// Creates an acceptor without client authentication from a PEM certificate chain (the server's
    /// own certificate first) and its PEM private key. `alpn` lists the supported protocols in
    /// order of preference, such as `&["h2", "http/1.1"]`, and may be empty.
    ///
    /// # Errors
    /// Fails with `InvalidInput` and the reason if the PEM is invalid, if it has no certificate or
    /// key, or if the key belongs to another certificate. Also fails if the process has no default
    /// crypto provider and feature `rustls-ring`, which falls back to ring, is off.
    pub fn from_pem(certificates: &[u8], key: &[u8], alpn: &[&str]) -> io::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| invalid("certificates", text_of(&error)))?;
        if chain.is_empty() {
            return Err(invalid("certificates", "no CERTIFICATE section"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => invalid("key", "no private key"),
            error => invalid("key", text_of(&error)),
        })?;
        let builder = ServerConfig::builder_with_provider(provider()?);
        let mut config = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("versions", error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| invalid("certificates and key", error))?;
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self::new(config))
    }

    /// Returns the rustls settings.
    pub fn config(&self) -> &Arc<ServerConfig> {
        self.acceptor.config()
    }

    /// Sets how long a handshake may take. The default is 10 s; `None` means no limit.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Performs the handshake with a client.
    ///
    /// Dropping the future closes the stream.
    ///
    /// # Errors
    /// Fails with `TimedOut` after the limit. The error is `InvalidData` with a [`rustls::Error`]
    /// inside if the client does not speak TLS, rejects the certificate, or lacks a trusted
    /// certificate where one is required. It is `UnexpectedEof` if the stream ends during the
    /// handshake. Errors of the stream are passed on.
    ///
    /// [`rustls::Error`]: tokio_rustls::rustls::Error
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = self.acceptor.accept(stream);
        Ok(within(self.limit, handshake, no_end_within).await?.into())
    }
}

/// Returns the process's default crypto provider. If none is installed, feature `rustls-ring` falls
/// back to ring.
fn provider() -> io::Result<Arc<CryptoProvider>> {
    if let Some(chosen) = CryptoProvider::get_default() {
        return Ok(chosen.clone());
    }
    #[cfg(feature = "rustls-ring")]
    return Ok(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()));
    #[cfg(not(feature = "rustls-ring"))]
    Err(invalid(
        "provider",
        "the process has no default crypto provider: install one, for example with rustls::crypto::aws_lc_rs::default_provider().install_default(), or enable the feature rustls-ring",
    ))
}

/// Describes a PEM error without text that might belong to a key: if the key's line breaks were
/// lost, the line and the label contain the whole key.
fn text_of(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let label = end_marker.split(|byte| *byte == b'-').next().unwrap_or_default();
            format!("the {} section has no END line", label.escape_ascii())
        }
        pem::Error::IllegalSectionStart { .. } => {
            "a line that begins with -----BEGIN does not end with -----".to_owned()
        }
        error => error.to_string(),
    }
}

fn invalid(what: &str, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("TLS {what}: {why}"))
}

impl std::fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsAcceptor").field("limit", &self.limit).finish_non_exhaustive()
    }
}
