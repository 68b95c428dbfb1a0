//! Sessions with correct and faulty servers.

use super::*;
use crate::exchange::{SendBytes, Transport};
use crate::fault::{Fault, FaultKind};
use crate::transport::PlainTransport;
use crate::transport::TlsTransport;
use annulus::net::TcpStream;
use annulus_skip::skip;
use rcgen::{CertificateParams, CertifiedKey, DnType, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// The function with which a server handles a connection.
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
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
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
    // A client that does not trust the server sends an alert.
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
    Tls { server_name: name.into(), trust }
}

/// Returns the fault of a handshake.
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
