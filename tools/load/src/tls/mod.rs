//! TLS settings: which certificates are trusted, and how sessions are created with rustls.
//!
//! rustls does no I/O; [`TlsTransport`](crate::transport::TlsTransport) passes received bytes to
//! the session, and queues the encrypted bytes on the stream. Each connection performs a full
//! handshake: session tickets would make the connections of a load cheaper than the connections of
//! the independent users that its clients represent.

use crate::invalid::{InvalidValue, invalid};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How connections are encrypted.
///
/// ```
/// use annulus_load::{Tls, Trust};
///
/// let tls = Tls { server_name: "localhost".into(), trust: Trust::Unchecked };
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
}

/// Which certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// Certificates whose chain ends at a root certificate of this system.
    System,
    /// Only certificates whose chain ends at a certificate in this file (PEM).
    Roots(PathBuf),
    /// Any certificate: neither chain, nor name, nor dates are checked. The connection is
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
        }
    }
}

impl Tls {
    /// Checks the name, and reads the trusted certificates.
    ///
    /// # Errors
    /// Fails if the name is neither a DNS name nor an address, if the file cannot be read or
    /// contains no certificate, or if the system has no root certificates.
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
    pub(crate) fn start(&self) -> Result<ClientConnection, rustls::Error> {
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
        .expect("ring supports TLS 1.2 and 1.3");
    let builder = match &tls.trust {
        Trust::System => builder.with_root_certificates(system_roots()?),
        Trust::Roots(path) => builder.with_root_certificates(read_roots(path)?),
        Trust::Unchecked => builder.dangerous().with_custom_certificate_verifier(Arc::new(
            AcceptAnyCertificate(ring::default_provider()),
        )),
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.resumption = Resumption::disabled();
    Ok(TlsConnector { config: Arc::new(config), name })
}

/// Loads the root certificates of this system. Damaged files are ignored as long as one certificate
/// is valid.
fn system_roots() -> Result<RootCertStore, InvalidValue> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(invalid(format!(
            "this system has no root certificates{why}: install the package ca-certificates, or \
             name a file with the roots to trust"
        )));
    }
    Ok(roots)
}

fn read_roots(path: &PathBuf) -> Result<RootCertStore, InvalidValue> {
    let shown = path.display();
    let failed =
        |why: &dyn fmt::Display| invalid(format!("cannot read certificates from {shown}: {why}"));
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    match roots.is_empty() {
        true => Err(invalid(format!("{shown} contains no certificate: name a file in PEM format"))),
        false => Ok(roots),
    }
}

/// Accepts every certificate. The server must still have the private key of the certificate that it
/// presents.
#[derive(Debug)]
struct AcceptAnyCertificate(CryptoProvider);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
