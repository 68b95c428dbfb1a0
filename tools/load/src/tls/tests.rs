use super::*;
use crate::exchange::SendBytes;
use crate::fault::{Fault, FaultKind};
use crate::transport::PlainTransport;
use crate::transport::TlsTransport;
use annulus::net::TcpStream;
use annulus_skip::skip;
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, DnType, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// Handles a connection on the server's side.
type Talk = fn(std::net::TcpStream, Arc<ServerConfig>);

/// Creates a self-signed certificate for a name.
fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// A temporary file, which is removed when the value is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, contents: &str) -> TemporaryFile {
        let path = std::env::temp_dir().join(format!("annulus-load-{}-{name}", std::process::id()));
        std::fs::write(&path, contents).unwrap();
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Starts a server on its own thread that accepts one connection.
fn serve(made: &CertifiedKey<KeyPair>, talk: Talk) -> SocketAddr {
    serve_clients(made, talk, None, rustls::DEFAULT_VERSIONS)
}

/// Like [`serve`], but with these versions of TLS. If `clients` is given, each client must present
/// a certificate that it has signed.
fn serve_clients(
    made: &CertifiedKey<KeyPair>,
    talk: Talk,
    clients: Option<&CertificateDer<'static>>,
    versions: &[&'static SupportedProtocolVersion],
) -> SocketAddr {
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(root) => {
            let mut roots = RootCertStore::empty();
            roots.add(root.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = config.with_single_cert(vec![made.cert.der().clone()], key);
    let mut config = config.unwrap();
    config.alpn_protocols = vec![b"lines".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || talk(listener.accept().unwrap().0, Arc::new(config)));
    address
}

/// Echoes until the client closes its side, then closes the connection.
fn echo(stream: std::net::TcpStream, config: Arc<ServerConfig>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut buffer = vec![0; 100_000];
    // Reading fails if the client rejects the certificate and sends an alert.
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        stream.write_all(&buffer[..count]).unwrap();
    }
    stream.conn.send_close_notify();
    _ = stream.flush();
}

async fn connect(address: SocketAddr, tls: &Tls) -> io::Result<TlsTransport> {
    let session = connector(tls, &["lines"]).unwrap();
    let stream = TcpStream::connect(address).await?;
    TlsTransport::connect(&session, PlainTransport::Tcp(stream)).await
}

/// Sends bytes and receives as many at the same time.
async fn round_trip(transport: &mut TlsTransport, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let (mut sent, mut back) = (0, Vec::new());
    poll_fn(|cx| {
        while sent < bytes.len() {
            match transport.poll_send(cx, SendBytes::Borrowed(&bytes[sent..]))? {
                std::task::Poll::Ready(count) => sent += count,
                std::task::Poll::Pending => break,
            }
        }
        while back.len() < bytes.len() {
            match transport.poll_receive(cx, |plain| back.extend_from_slice(plain))? {
                std::task::Poll::Ready(Some(())) => {}
                std::task::Poll::Ready(None) => {
                    panic!("the stream ended after {} bytes", back.len())
                }
                std::task::Poll::Pending => return std::task::Poll::Pending,
            }
        }
        std::task::Poll::Ready(io::Result::Ok(()))
    })
    .await?;
    Ok(back)
}

fn trusting(name: &str, trust: Trust) -> Tls {
    Tls::new(name, trust)
}

fn refused(address: SocketAddr, tls: &Tls) -> Fault {
    let connected = annulus::run(async { connect(address, tls).await.map(drop) });
    Fault::handshake(&connected.unwrap_err())
}

#[test]
fn tls_transfers_any_number_of_bytes() {
    let made = certificate("localhost");
    let file = TemporaryFile::new("trusted.pem", &made.cert.pem());
    for trust in [Trust::Roots(file.0.clone()), Trust::Unchecked] {
        let address = serve(&made, echo);
        annulus::run(async {
            let mut transport = connect(address, &trusting("localhost", trust)).await.unwrap();
            assert_eq!(transport.protocol(), Some(&b"lines"[..]));
            for length in [1, 16_384, 16_385, 3_000_001] {
                let bytes: Vec<u8> = (0..length as u32)
                    .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
                    .collect();
                assert!(
                    round_trip(&mut transport, &bytes).await.unwrap() == bytes,
                    "{length} bytes"
                );
            }
            poll_fn(|cx| transport.poll_shutdown(cx)).await.unwrap();
            let end = poll_fn(|cx| transport.poll_receive(cx, |plain| plain.len())).await;
            assert_eq!(end.unwrap(), None);
        });
    }
}

#[test]
fn untrusted_issuer_is_a_bad_certificate() {
    let made = certificate("localhost");
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "another issuer");
    let other = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let other = TemporaryFile::new("other.pem", &other.pem());
    for trust in [Trust::Roots(other.0.clone()), Trust::System] {
        if matches!(trust, Trust::System)
            && trusting("localhost", Trust::System).validate().is_err()
        {
            skip!("this system has no root certificates");
            continue;
        }
        let fault = refused(serve(&made, echo), &trusting("localhost", trust));
        assert_eq!(fault.kind, FaultKind::CERTIFICATE, "{}", fault.detail);
        assert!(fault.detail.contains("UnknownIssuer"), "{}", fault.detail);
    }
}

#[test]
fn wrong_name_or_expired_certificate_is_bad() {
    let made = certificate("a.example");
    let file = TemporaryFile::new("name.pem", &made.cert.pem());
    let fault = refused(serve(&made, echo), &trusting("b.example", Trust::Roots(file.0.clone())));
    assert_eq!(fault.kind, FaultKind::CERTIFICATE, "{}", fault.detail);
    assert!(
        fault.detail.contains("a.example") && fault.detail.contains("b.example"),
        "{}",
        fault.detail
    );

    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let signing_key = KeyPair::generate().unwrap();
    let made = CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key };
    let file = TemporaryFile::new("expired.pem", &made.cert.pem());
    let fault = refused(serve(&made, echo), &trusting("localhost", Trust::Roots(file.0.clone())));
    assert_eq!(fault.kind, FaultKind::CERTIFICATE, "{}", fault.detail);
}

#[test]
fn expired_certificate_is_not_reported_as_a_wrong_name() {
    let signing_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["other.example".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    for is_authority in [false, true] {
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let cert = params.self_signed(&signing_key).unwrap();
        let file = TemporaryFile::new(&format!("old-{is_authority}.pem"), &cert.pem());
        let signing_key = KeyPair::try_from(signing_key.serialize_der()).unwrap();
        let made = CertifiedKey { cert, signing_key };
        let tls = trusting("localhost", Trust::Roots(file.0.clone()));
        let fault = refused(serve(&made, echo), &tls);
        assert!(fault.detail.contains("has expired: renew it"), "{}", fault.detail);
        assert!(!fault.detail.contains("name"), "{}", fault.detail);
    }
    params.not_after = rcgen::date_time_ymd(2300, 1, 1);
    params.not_before = rcgen::date_time_ymd(2299, 1, 1);
    let cert = params.self_signed(&signing_key).unwrap();
    let file = TemporaryFile::new("early.pem", &cert.pem());
    let made = CertifiedKey { cert, signing_key };
    let fault = refused(serve(&made, echo), &trusting("localhost", Trust::Roots(file.0.clone())));
    assert!(fault.detail.contains("is not valid yet: check the clocks"), "{}", fault.detail);
}

/// `openssl req -x509` creates such certificates.
#[test]
fn trusted_authority_certificate_is_accepted_for_its_name() {
    let authority = |name: &str| {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signing_key = KeyPair::generate().unwrap();
        CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
    };
    let made = authority("own.example");
    let file = TemporaryFile::new("authority.pem", &made.cert.pem());
    let trust = Trust::Roots(file.0.clone());
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let address = serve_clients(&made, echo, None, versions);
        annulus::run(async {
            let tls = trusting("own.example", trust.clone());
            let mut transport = connect(address, &tls).await.unwrap();
            assert_eq!(round_trip(&mut transport, b"hello").await.unwrap(), b"hello");
        });
    }
    let fault = refused(serve(&made, echo), &trusting("other.example", trust.clone()));
    assert!(fault.detail.contains("is for another name"), "{}", fault.detail);
    let fault = refused(serve(&authority("own.example"), echo), &trusting("own.example", trust));
    assert_eq!(fault.kind, FaultKind::CERTIFICATE, "{}", fault.detail);
}

#[test]
fn mutual_tls_needs_a_certificate_that_the_server_accepts() {
    let (server, client) = (certificate("localhost"), certificate("client"));
    let mut params = CertificateParams::new(["stranger".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "another issuer");
    let signing_key = KeyPair::generate().unwrap();
    let stranger = CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key };
    let key = |made: &CertifiedKey<KeyPair>| made.signing_key.serialize_pem();
    let files = [
        TemporaryFile::new("client.pem", &client.cert.pem()),
        TemporaryFile::new("client.key", &key(&client)),
        TemporaryFile::new("stranger.pem", &(stranger.cert.pem() + &key(&stranger))),
    ];
    let [client_file, key_file, stranger_file] = files.each_ref().map(|file| file.0.clone());
    let with = |certificate: &PathBuf, key: &PathBuf| Tls {
        identity: Some(ClientIdentity { certificate: certificate.clone(), key: key.clone() }),
        ..trusting("localhost", Trust::Unchecked)
    };
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let serve = || serve_clients(&server, echo, Some(client.cert.der()), versions);
        annulus::run(async {
            let tls = with(&client_file, &key_file);
            let mut transport = connect(serve(), &tls).await.unwrap();
            assert_eq!(round_trip(&mut transport, b"hello").await.unwrap(), b"hello");
        });
        for (tls, part) in [
            (trusting("localhost", Trust::Unchecked), "requires a certificate of the client"),
            (with(&stranger_file, &stranger_file), "does not accept the client's certificate"),
        ] {
            let address = serve();
            // With TLS 1.3 the alert arrives after the handshake.
            let fault = annulus::run(async {
                match connect(address, &tls).await {
                    Err(error) => Fault::handshake(&error),
                    Ok(mut transport) => {
                        let end = poll_fn(|cx| transport.poll_receive(cx, <[u8]>::len)).await;
                        Fault::transfer(&end.unwrap_err())
                    }
                }
            });
            assert_eq!(fault.kind, FaultKind::TLS, "{}", fault.detail);
            assert!(fault.detail.contains(part), "{part} is not in: {}", fault.detail);
        }
    }
    let refused = |tls: Tls, part: &str| {
        let error = tls.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(with(&client_file, &stranger_file), "does not belong to the first certificate in");
    refused(with(&client_file, &client_file), "contains no private key");
    refused(with(&key_file, &key_file), "contains no certificate");
    refused(with(&client_file, &"/nowhere/x".into()), "cannot read a private key from /nowhere/x");
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = TemporaryFile::new("encrypted.key", encrypted);
    refused(with(&client_file, &encrypted.0), "is encrypted: decrypt it with `openssl pkey");
}

#[test]
fn server_without_tls_is_a_tls_fault() {
    let made = certificate("localhost");
    let tls = trusting("localhost", Trust::Unchecked);
    let plain: Talk = |mut stream, _| {
        _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        _ = stream.read(&mut [0; 100_000]);
    };
    let closes: Talk = |mut stream, _| _ = stream.read(&mut [0; 100_000]);
    for talk in [plain, closes] {
        let fault = refused(serve(&made, talk), &tls);
        assert_eq!(fault.kind, FaultKind::TLS, "{}", fault.detail);
        assert!(fault.detail.contains("does the server speak TLS"), "{}", fault.detail);
    }
}

#[test]
fn eof_without_close_notify_is_an_error() {
    let address = serve(&certificate("localhost"), |stream, config| {
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
        stream.write_all(b"half").unwrap();
        stream.flush().unwrap();
    });
    annulus::run(async {
        let tls = trusting("localhost", Trust::Unchecked);
        let mut transport = connect(address, &tls).await.unwrap();
        let first = poll_fn(|cx| transport.poll_receive(cx, <[u8]>::to_vec)).await.unwrap();
        assert_eq!(first.as_deref(), Some(&b"half"[..]));
        let end = poll_fn(|cx| transport.poll_receive(cx, <[u8]>::len)).await.unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn invalid_tls_settings_are_rejected() {
    let refused = |tls: Tls, part: &str| {
        let error = tls.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(trusting("a b", Trust::Unchecked), "'a b' is neither a DNS name nor an address");
    refused(
        trusting("a", Trust::Roots("/nowhere/x".into())),
        "cannot read certificates from /nowhere/x",
    );
    let empty = TemporaryFile::new("empty.pem", "no certificate");
    refused(trusting("a", Trust::Roots(empty.0.clone())), "contains no certificate");
    let broken = TemporaryFile::new(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    );
    refused(trusting("a", Trust::Roots(broken.0.clone())), "cannot read certificates from");
}
