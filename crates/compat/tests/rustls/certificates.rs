//! Certificates for these tests, made when they run.

use crate::rustls::worlds::{Session, World};
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::{Arc, OnceLock};

/// The name of the server.
pub(crate) const NAME: &str = "server.test";

/// An authority, and certificates that it has signed.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Authorities of different names are distinguished before a signature is looked at.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// A certificate and its key.
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

    /// A server for every client.
    pub(crate) fn server(&self) -> ServerConfig {
        let (certificate, key) = self.sign(NAME);
        let builder = ServerConfig::builder().with_no_client_auth();
        builder.with_single_cert(vec![certificate], key).unwrap()
    }

    /// A server for clients that this authority knows.
    pub(crate) fn strict_server(&self) -> ServerConfig {
        let (certificate, key) = self.sign(NAME);
        let verifier = WebPkiClientVerifier::builder(self.roots()).build().unwrap();
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
        builder.with_single_cert(vec![certificate], key).unwrap()
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::builder().with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// A client that trusts this authority, with a certificate of its own from that one.
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

/// Both ends of a session: the client's and the server's.
pub(crate) async fn session(world: World) -> std::io::Result<(Session, Session)> {
    let (client, server) = world.pair().await?;
    let connector = TlsConnector::new(authority().client());
    let acceptor = TlsAcceptor::new(authority().server());
    tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))
}
