//! TLS by rustls: what is trusted, and a transport over it.
//!
//! rustls does no I/O; this drives it: received bytes go from the leases of the runtime into the session, and what it encrypts goes into
//! the queue of the stream. Each connection makes a full handshake: tickets of one client would make a connection of another cheaper than
//! it is for the users that the clients stand for.

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
    /// The name that the certificate must be for, which is sent to the server (SNI) unless it is an address.
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
    /// Certificates whose chain ends at a certificate of this file (PEM), and no others.
    Roots(PathBuf),
    /// Any certificate: neither chain, nor name, nor dates are checked. The connection is encrypted, and may be with another server.
    Unchecked,
}

/// As it stands in reports.
impl fmt::Display for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trust {
            Trust::System => {
                write!(f, "certificates for {} of this system's roots", self.server_name)
            }
            Trust::Roots(path) => {
                write!(
                    f,
                    "certificates for {} of the roots in {}",
                    self.server_name,
                    path.display()
                )
            }
            Trust::Unchecked => {
                write!(
                    f,
                    "certificates are NOT CHECKED: any server can stand for {}",
                    self.server_name
                )
            }
        }
    }
}

impl Tls {
    /// Checks the name, and reads what is trusted.
    ///
    /// # Errors
    /// For a name that is neither a DNS name nor an address, for a file that cannot be read or has no certificate, and for a system without
    /// root certificates.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        connector(self, &[]).map(drop)
    }
}

/// Makes the sessions of a run.
#[derive(Clone)]
pub(crate) struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnector {
    /// A session that has not begun.
    pub(crate) fn start(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

/// The maker of sessions, which ask for one of these protocols (ALPN) if there are any.
pub(crate) fn connector(tls: &Tls, protocols: &[&str]) -> Result<TlsConnector, InvalidValue> {
    let name = ServerName::try_from(tls.server_name.clone()).map_err(|_| {
        let name = &tls.server_name;
        invalid(format!(
            "'{name}' is neither a DNS name nor an address, as the name in a certificate is"
        ))
    })?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what TLS 1.2 and 1.3 need");
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

/// The roots of this system. Single files that are damaged do not count, as long as one is right.
fn system_roots() -> Result<RootCertStore, InvalidValue> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(invalid(format!(
            "this system has no root certificates{why}: install its package ca-certificates, or name a file with the \
             roots to trust"
        )));
    }
    Ok(roots)
}

fn read_roots(path: &PathBuf) -> Result<RootCertStore, InvalidValue> {
    let shown = path.display();
    let failed = |why: &dyn fmt::Display| {
        invalid(format!("certificates cannot be read from {shown}: {why}"))
    };
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    match roots.is_empty() {
        true => Err(invalid(format!("{shown} has no certificate: name a file in the PEM format"))),
        false => Ok(roots),
    }
}

/// Takes every certificate. The server still has to have the key of the one that it shows.
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
