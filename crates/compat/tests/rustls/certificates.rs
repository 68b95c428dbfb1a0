//! Certificates for these tests, generated at run time.

use crate::rustls::worlds::{Session, World};
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::{Arc, OnceLock};

pub(crate) const NAME: &str = "server.test";

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority. Verification tells authorities apart by name, before it checks a
    /// signature.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// Signs a certificate for `name`, and returns it with its key.
    pub(crate) fn sign(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots.into()
    }

    /// Returns the settings of a server that accepts every client.
    pub(crate) fn server(&self) -> ServerConfig {
        let (certificate, key) = self.sign(NAME);
        let builder = ServerConfig::builder().with_no_client_auth();
        builder.with_single_cert(vec![certificate], key).unwrap()
    }

    /// Returns the settings of a server that requires client certificates from this authority.
    pub(crate) fn strict_server(&self) -> ServerConfig {
        let (certificate, key) = self.sign(NAME);
        let verifier = WebPkiClientVerifier::builder(self.roots()).build().unwrap();
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
        builder.with_single_cert(vec![certificate], key).unwrap()
    }

    /// Returns the settings of a client that trusts this authority.
    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::builder().with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// Returns the settings of a client that trusts this authority and has a certificate from
    /// `other`.
    pub(crate) fn client_known_to(&self, other: &Self) -> ClientConfig {
        let (certificate, key) = other.sign("client.test");
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        builder.with_client_auth_cert(vec![certificate], key).unwrap()
    }
}

/// The authority that all tests share.
pub(crate) fn authority() -> &'static Authority {
    static ONE: OnceLock<Authority> = OnceLock::new();
    ONE.get_or_init(|| Authority::new("ours"))
}

/// Opens a session, and returns the client's and the server's end.
pub(crate) async fn session(world: World) -> std::io::Result<(Session, Session)> {
    let (client, server) = world.pair().await?;
    let connector = TlsConnector::new(authority().client());
    let acceptor = TlsAcceptor::new(authority().server());
    tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))
}
