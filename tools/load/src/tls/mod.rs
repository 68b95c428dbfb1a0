//! TLS settings: which certificates are trusted, and how sessions are created with rustls.
//!
//! rustls does no I/O; [`TlsTransport`](crate::transport::TlsTransport) passes received bytes to
//! the session, and queues the encrypted bytes on the stream. Each connection performs a full
//! handshake: with session tickets, the load's connections would cost the server less than
//! connections of independent users.

use crate::invalid::{InvalidValue, invalid};
use crate::pem;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How connections are encrypted.
///
/// ```
/// use annulus_load::{Tls, Trust};
///
/// let tls = Tls::new("localhost", Trust::Unchecked);
/// assert!(tls.validate().is_ok());
/// let tls = Tls { server_name: "local host".into(), ..tls };
/// assert!(tls.validate().unwrap_err().to_string().contains("'local host'"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The name that the certificate must be for. It is sent to the server (SNI) unless it is an
    /// address.
    pub server_name: String,
    /// Which certificates are trusted.
    pub trust: Trust,
    /// The certificate that clients present if the server asks for one (mutual TLS).
    pub identity: Option<ClientIdentity>,
}

/// The certificate of the clients, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// A file with the certificate, and the certificates of its issuers if the server needs them
    /// (PEM).
    pub certificate: PathBuf,
    /// A file with the private key (PEM, not encrypted). It may be the file with the certificate.
    pub key: PathBuf,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// Certificates whose chain ends at a root certificate of this system.
    System,
    /// Only certificates whose chain ends at a certificate in this file (PEM), and self-signed
    /// certificates in this file, even if they are certificates of authorities.
    Roots(PathBuf),
    /// Any certificate: neither its chain nor its name nor its dates are checked. The connection is
    /// encrypted, but possibly to a different server.
    Unchecked,
}

/// Formats the settings as shown in reports.
impl fmt::Display for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trust {
            Trust::System => {
                write!(f, "certificates for {} from this system's roots", self.server_name)
            }
            Trust::Roots(path) => {
                write!(
                    f,
                    "certificates for {} from the roots in {}",
                    self.server_name,
                    path.display()
                )
            }
            Trust::Unchecked => {
                write!(
                    f,
                    "certificates are NOT CHECKED: any server can impersonate {}",
                    self.server_name
                )
            }
        }?;
        match &self.identity {
            Some(identity) => {
                write!(
                    f,
                    "; connections have the certificate in {}",
                    identity.certificate.display()
                )
            }
            None => Ok(()),
        }
    }
}

impl Tls {
    /// Creates settings without a certificate for the clients.
    pub fn new(server_name: impl Into<String>, trust: Trust) -> Tls {
        Tls { server_name: server_name.into(), trust, identity: None }
    }

    /// Checks the name, and reads the certificates and the key.
    ///
    /// # Errors
    /// Fails if the name is neither a DNS name nor an address, if a file cannot be read or has the
    /// wrong contents, if the key does not belong to the certificate, or if the system has no root
    /// certificates.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        connector(self, &[]).map(drop)
    }
}

/// Creates the TLS sessions of a run.
#[derive(Clone)]
pub(crate) struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnector {
    /// Creates a session, which has not started its handshake.
    pub(crate) fn start(&self) -> Result<ClientConnection, Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

/// Creates the connector of a run. Its sessions offer `protocols` by ALPN, if there are any.
pub(crate) fn connector(tls: &Tls, protocols: &[&str]) -> Result<TlsConnector, InvalidValue> {
    let name = ServerName::try_from(tls.server_name.clone()).map_err(|_| {
        let name = &tls.server_name;
        invalid(format!(
            "'{name}' is neither a DNS name nor an address, so no certificate can be for it"
        ))
    })?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring does not support TLS 1.2 and 1.3");
    let builder = match &tls.trust {
        Trust::System => builder.with_root_certificates(pem::system_roots()?),
        Trust::Roots(path) => builder.dangerous().with_custom_certificate_verifier(trusting(path)?),
        Trust::Unchecked => builder
            .dangerous()
            .with_custom_certificate_verifier(CertificateCheck::new(|_: Presented<'_>| Ok(()))),
    };
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) =
                (pem::certificates(&identity.certificate)?, pem::private_key(&identity.key)?);
            builder.with_client_auth_cert(chain, key).map_err(|error| match error {
                Error::InconsistentKeys(_) => invalid(format!(
                    "the private key in {} does not belong to the first certificate in {}: give \
                     the files of the same client",
                    identity.key.display(),
                    identity.certificate.display()
                )),
                error => invalid(format!(
                    "the certificate in {} and the key in {} cannot be used: {error}",
                    identity.certificate.display(),
                    identity.key.display()
                )),
            })?
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.resumption = Resumption::disabled();
    Ok(TlsConnector { config: Arc::new(config), name })
}

/// Returns a verifier that accepts the certificates that rustls accepts with the roots of a file.
/// Like OpenSSL, it also accepts a server certificate with `CA:TRUE` if the file contains it,
/// because `openssl req -x509` creates such certificates.
fn trusting(path: &Path) -> Result<Arc<dyn ServerCertVerifier>, InvalidValue> {
    let trusted = pem::certificates(path)?;
    let failed = |error: &dyn fmt::Display| {
        invalid(format!("cannot read certificates from {}: {error}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in &trusted {
        roots.add(certificate.clone()).map_err(|error| failed(&error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let usual = usual.map_err(|error| failed(&error))?;
    Ok(CertificateCheck::new(move |server: Presented<'_>| {
        let Presented { certificate, intermediates, name, ocsp_response, now } = server;
        match usual.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // rustls has checked the dates before it returns this error, but not the name.
            Err(error) if is_authority_error(&error) && trusted.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
            }
            usual => usual.map(drop),
        }
    }))
}

/// Returns true if a certificate was rejected because it is the certificate of an authority.
pub(crate) fn is_authority_error(error: &Error) -> bool {
    error.to_string().contains("CaUsedAsEndEntity")
}

/// What a server presents in a handshake.
pub struct Presented<'a> {
    /// The certificate of the server.
    pub certificate: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
    name: &'a ServerName<'a>,
    ocsp_response: &'a [u8],
    now: UnixTime,
}

/// Verifies servers by a function. The server must always have the private key of the certificate
/// that it presents.
pub struct CertificateCheck<F> {
    check: F,
    provider: CryptoProvider,
}

impl<F: Fn(Presented<'_>) -> Result<(), Error> + Send + Sync + 'static> CertificateCheck<F> {
    /// Creates a verifier that accepts what `check` accepts.
    #[allow(clippy::new_ret_no_self)] // rustls takes verifiers in this form.
    pub fn new(check: F) -> Arc<dyn ServerCertVerifier> {
        Arc::new(CertificateCheck { check, provider: ring::default_provider() })
    }
}

impl<F> fmt::Debug for CertificateCheck<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateCheck")
    }
}

impl<F: Fn(Presented<'_>) -> Result<(), Error> + Send + Sync> ServerCertVerifier
    for CertificateCheck<F>
{
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.check)(Presented { certificate, intermediates, name, ocsp_response, now })
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
