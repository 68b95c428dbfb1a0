//! Sessions of this kind on every kernel: over streams that were not made ready for keys, so that all is encrypted in the program. The other
//! end is rustls.

use super::handshake::Handshake;
use super::sending::Sending;
use super::{KernelSession, KernelTls};
use crate::rustls::{TlsAcceptor, TlsConnector, TlsStream};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::{TcpListener, TcpStream};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring::{ALL_CIPHER_SUITES, default_provider};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, ClientConfig, Error, HandshakeKind, RootCertStore, ServerConfig,
    SupportedCipherSuite,
};

const NAME: &str = "server.test";

type Session = TlsStream<TcpStream>;
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The end whose session is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ours {
    Client,
    Server,
}

/// Settings for a client and a server that agree on this suite.
fn configs(suite: SupportedCipherSuite) -> (ClientConfig, ServerConfig) {
    let mut provider = default_provider();
    provider.cipher_suites = vec![suite];
    let provider = Arc::new(provider);
    let versions = [suite.version()];
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new([NAME.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(provider.clone());
    let server = server.with_protocol_versions(&versions).unwrap().with_no_client_auth();
    let mut server = server.with_single_cert(vec![certificate.clone()], key).unwrap();
    server.alpn_protocols = vec![b"test".to_vec()];
    server.enable_secret_extraction = true;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_protocol_versions(&versions).unwrap().with_root_certificates(roots);
    let mut client = client.with_no_client_auth();
    client.alpn_protocols = vec![b"test".to_vec()];
    client.enable_secret_extraction = true;
    (client, server)
}

/// The suites for which a key can be made here: rcgen with ring makes none of RSA.
fn suites() -> impl Iterator<Item = SupportedCipherSuite> {
    ALL_CIPHER_SUITES.iter().copied().filter(|suite| !format!("{suite:?}").contains("_RSA_"))
}

fn of_1_3() -> SupportedCipherSuite {
    suites().find(|suite| suite.tls13().is_some()).expect("a suite of TLS 1.3")
}

fn of_1_2() -> SupportedCipherSuite {
    suites().find(|suite| suite.tls13().is_none()).expect("a suite of TLS 1.2")
}

/// A session of this kind over a stream that the kernel does not encrypt.
async fn here(handshake: Result<Handshake, Error>, stream: TcpStream) -> io::Result<Session> {
    let handshake = handshake.map_err(io::Error::other)?;
    let session = KernelSession::new(handshake, stream, KernelTls::IfAvailable).await?;
    Ok(TlsStream::of_kernel(session))
}

async fn streams() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

/// This kind's end, and the other.
async fn ends(
    ours: Ours,
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> io::Result<(Session, Session)> {
    let (one, two) = streams().await?;
    let (connector, acceptor) =
        (TlsConnector::new(client.clone()), TlsAcceptor::new(server.clone()));
    match ours {
        Ours::Client => {
            let handshake = Handshake::of_client(client, ServerName::try_from(NAME).unwrap());
            tokio::try_join!(here(handshake, one), acceptor.accept(two))
        }
        Ours::Server => {
            let handshake = Handshake::of_server(server);
            tokio::try_join!(here(handshake, two), connector.connect(NAME, one))
        }
    }
}

async fn ends_with(ours: Ours, suite: SupportedCipherSuite) -> io::Result<(Session, Session)> {
    let (client, server) = configs(suite);
    ends(ours, &client.into(), &server.into()).await
}

fn run(body: impl Future<Output = Outcome>) {
    let within = annulus::time::timeout(Duration::from_secs(120), body);
    annulus::run(async { within.await.expect("a hang") }).unwrap();
}

/// What is sent arrives, both ways.
async fn talk(one: &mut Session, other: &mut Session, len: usize) -> Outcome {
    let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    for from_one in [true, false] {
        let (from, to) = if from_one { (&mut *one, &mut *other) } else { (&mut *other, &mut *one) };
        let sends = async {
            from.send(sent.clone()).await?;
            from.flush().await
        };
        let (bytes, ()) = tokio::try_join!(to.recv_exact(len), sends)?;
        assert!(*bytes == *sent, "other bytes, from one: {from_one}");
    }
    Ok(())
}

#[test]
fn every_suite_carries_bytes_and_ends_from_either_side() {
    assert!(suites().count() >= 6, "{:?}", suites().collect::<Vec<_>>());
    run(async {
        for suite in suites() {
            for ours in [Ours::Client, Ours::Server] {
                let (mut one, mut other) = ends_with(ours, suite).await?;
                assert!(!one.is_kernel() && one.state().is_none());
                assert_eq!(one.alpn_protocol(), Some(&b"test"[..]), "{suite:?}");
                assert_eq!(one.protocol_version(), Some(suite.version().version));
                assert_eq!(one.server_name(), (ours == Ours::Server).then_some(NAME));
                assert_eq!(one.peer_certificates().is_some(), ours == Ours::Client);
                talk(&mut one, &mut other, 50_000).await?;
                one.shutdown().await?;
                assert!(other.recv().await?.is_none(), "{suite:?}, {ours:?}");
                other.shutdown().await?;
                assert!(one.recv().await?.is_none(), "{suite:?}, {ours:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn required_needs_the_cipher() {
    run(async {
        let (client, server) = configs(of_1_3());
        let (one, two) = streams().await?;
        let handshake = Handshake::of_server(&server)?;
        let session = KernelSession::new(handshake, two, KernelTls::Required);
        let connector = TlsConnector::new(client);
        let (_client, session) = tokio::join!(connector.connect(NAME, one), session);
        let error = session.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("prepare_kernel_tls"), "{error}");
        Ok(())
    });
}

#[test]
fn tickets_are_kept_for_the_next_session() {
    run(async {
        let (mut client, mut server) = configs(of_1_3());
        // Neither has early data, as both would like to.
        client.enable_early_data = true;
        server.max_early_data_size = 1 << 14;
        let (client, server) = (Arc::new(client), Arc::new(server));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            let (mut one, mut other) = ends(Ours::Client, &client, &server).await?;
            assert_eq!(other.state().and_then(|state| state.handshake_kind()), Some(kind));
            // Tickets come in front of it.
            talk(&mut one, &mut other, 100).await?;
        }
        for _ in 0..2 {
            let (mut one, mut other) = ends(Ours::Server, &client, &server).await?;
            talk(&mut one, &mut other, 100).await?;
        }
        Ok(())
    });
}

#[test]
fn new_keys_are_followed_and_answered() {
    run(async {
        for suite in suites().filter(|suite| suite.tls13().is_some()) {
            for ours in [Ours::Client, Ours::Server] {
                let (mut one, other) = ends_with(ours, suite).await?;
                let mut other = other;
                for _ in 0..3 {
                    other.refresh_keys();
                    talk(&mut other, &mut one, 20_000).await?;
                    talk(&mut one, &mut other, 20_000).await?;
                }
            }
        }
        Ok(())
    });
}

#[test]
fn keys_are_changed_before_they_are_used_too_often() {
    run(async {
        let (mut one, mut other) = ends_with(Ours::Server, of_1_3()).await?;
        one.limit_records(3);
        talk(&mut one, &mut other, 400_000).await?;
        talk(&mut one, &mut other, 100).await?;
        Ok(())
    });
}

#[test]
fn tls_1_2_ends_before_its_keys_are_used_too_often() {
    run(async {
        let (mut one, mut other) = ends_with(Ours::Server, of_1_2()).await?;
        one.limit_records(3);
        let error = loop {
            if let Err(error) = one.send("bytes").await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "{error}");
        one.shutdown().await?;
        let mut received = Vec::new();
        AsyncRecv::read_to_end(&mut other, &mut received, 1000).await?;
        // One record was of the handshake.
        assert_eq!(received, b"bytesbytes");
        Ok(())
    });
}

#[test]
fn what_was_changed_on_the_way_is_an_error_of_which_the_peer_is_told() {
    run(async {
        for suite in suites() {
            let (mut one, mut other) = ends_with(Ours::Server, suite).await?;
            let mut record = vec![23, 3, 3, 0, 64];
            record.extend([7; 64]);
            other.get_mut().send(record).await?;
            for _ in 0..2 {
                let error = one.recv().await.map(drop).unwrap_err();
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
                assert_eq!(cause, Some(&Error::DecryptError), "{suite:?}");
            }
            let error = other.recv().await.map(drop).unwrap_err();
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
            assert_eq!(cause, Some(&Error::AlertReceived(AlertDescription::BadRecordMac)));
        }
        Ok(())
    });
}

#[test]
fn a_bad_handshake_is_an_error_of_which_the_peer_is_told() {
    run(async {
        let (_, server) = configs(of_1_3());
        let (client, _) = configs(of_1_3());
        let (client, server) = (Arc::new(client), Arc::new(server));
        let (one, two) = streams().await?;
        // It trusts another certificate.
        let handshake = Handshake::of_client(&client, ServerName::try_from(NAME).unwrap());
        let acceptor = TlsAcceptor::new(server);
        let (made, accepted) = tokio::join!(here(handshake, one), acceptor.accept(two));
        let error = made.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let error = accepted.map(drop).unwrap_err();
        assert!(error.to_string().contains("alert"), "{error}");

        let (mut one, two) = streams().await?;
        one.send("GET / HTTP/1.1\r\n\r\n").await?;
        let (_, server) = configs(of_1_3());
        let error = here(Handshake::of_server(&server), two).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");

        let (one, two) = streams().await?;
        drop(one);
        let error = here(Handshake::of_server(&server), two).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
        Ok(())
    });
}

/// What only tests do.
impl Session {
    /// rustls makes new keys, and asks for some.
    fn refresh_keys(&mut self) {
        let crate::rustls::session::Session::Rustls(session) = &mut self.session else {
            panic!("not of rustls")
        };
        match session {
            tokio_rustls::TlsStream::Client(session) => {
                session.get_mut().1.refresh_traffic_keys().unwrap();
            }
            tokio_rustls::TlsStream::Server(session) => {
                session.get_mut().1.refresh_traffic_keys().unwrap();
            }
        }
    }

    /// As if the cipher allowed no more records.
    fn limit_records(&mut self, limit: u64) {
        let crate::rustls::session::Session::Kernel(session) = &mut self.session else {
            panic!("of rustls")
        };
        let Sending::Here(sealed) = &mut session.sending else { panic!("of the kernel") };
        sealed.sealer.limit = limit;
    }
}
