//! The program chooses the crypto provider for handshakes. A process has one default, so this test
//! has its own process.

mod common;

use annulus::net::{TcpListener, TcpStream};
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use common::on_drivers;
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use std::sync::Arc;

const CHOSEN_SUITE: CipherSuite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;

#[test]
fn from_pem_uses_the_process_default_provider() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let acceptor = || TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &[]).unwrap();
    let suites = |acceptor: &TlsAcceptor| acceptor.config().crypto_provider().cipher_suites.len();
    assert!(suites(&acceptor()) > 1, "without a default, the provider is ring with all its suites");

    let all = ring::default_provider();
    let cipher_suites =
        all.cipher_suites.iter().filter(|suite| suite.suite() == CHOSEN_SUITE).copied();
    let chosen = CryptoProvider { cipher_suites: cipher_suites.collect(), ..all.clone() };
    chosen.install_default().expect("the process already has a default provider");
    assert_eq!(suites(&acceptor()), 1);

    on_drivers(async || {
        let acceptor = acceptor();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = annulus::spawn(async move {
            let session = acceptor.accept(listener.accept().await?.0).await?;
            std::io::Result::Ok(session.state().negotiated_cipher_suite().map(|it| it.suite()))
        });
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let _session = TlsConnector::new(client).connect("localhost", stream).await?;
        assert_eq!(server.await??, Some(CHOSEN_SUITE));
        Ok(())
    });
}
