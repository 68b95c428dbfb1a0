//! TLS handshakes: protocol choice, refusals, timeouts, and invalid certificates and keys.

use crate::rustls::certificates::{Authority, NAME, authority, session};
use crate::rustls::worlds::{Session, World, everywhere};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::TcpStream;
use annulus::time::Instant;
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use rustls::{ClientConfig, ServerConfig};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Performs a handshake, and returns the results of the client and the server.
async fn shake(
    world: World,
    client: ClientConfig,
    server: ServerConfig,
) -> io::Result<(io::Result<Session>, io::Result<Session>)> {
    let (one, two) = world.pair().await?;
    let (connector, acceptor) = (TlsConnector::new(client), TlsAcceptor::new(server));
    Ok(tokio::join!(connector.connect(NAME, one), acceptor.accept(two)))
}

fn protocols(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

#[test]
fn both_sides_agree_on_a_protocol() {
    everywhere(async |world| {
        let (mut client, mut server) = (authority().client(), authority().server());
        client.alpn_protocols = protocols(&["http/1.1", "h2"]);
        server.alpn_protocols = protocols(&["h2", "http/1.1"]);
        let (one, two) = shake(world, client, server).await?;
        let (one, two) = (one?, two?);
        assert_eq!(one.alpn_protocol(), Some(&b"h2"[..]), "not the server's preference");
        assert_eq!(two.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!((one.server_name(), two.server_name()), (None, Some(NAME)));
        assert_eq!(one.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        assert_eq!(one.peer_certificates().map(<[_]>::len), Some(1));
        Ok(())
    });
}

#[test]
fn no_protocol_in_common_is_an_error_on_both_sides() {
    everywhere(async |world| {
        let (mut client, mut server) = (authority().client(), authority().server());
        client.alpn_protocols = protocols(&["one"]);
        server.alpn_protocols = protocols(&["two"]);
        let (one, two) = shake(world, client, server).await?;
        let (one, two) = (one.unwrap_err().to_string(), two.unwrap_err().to_string());
        assert!(one.contains("NoApplicationProtocol"), "{one}");
        assert!(two.contains("protocol"), "{two}");
        Ok(())
    });
}

#[test]
fn unknown_authority_is_refused_and_the_server_keeps_running() {
    everywhere(async |world| {
        let (one, two) =
            shake(world, Authority::new("foreign").client(), authority().server()).await?;
        let (one, two) = (one.unwrap_err(), two.unwrap_err());
        assert_eq!((one.kind(), two.kind()), (ErrorKind::InvalidData, ErrorKind::InvalidData));
        assert!(one.to_string().contains("UnknownIssuer"), "{one}");
        assert!(two.to_string().contains("alert: UnknownCA"), "{two}");
        let cause = one.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        assert!(matches!(cause, Some(rustls::Error::InvalidCertificate(_))));
        session(world).await?;
        Ok(())
    });
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    everywhere(async |world| {
        let (one, two) = world.pair().await?;
        let connector = TlsConnector::new(authority().client());
        let acceptor = TlsAcceptor::new(authority().server());
        let (one, two) = tokio::join!(connector.connect("other.test", one), acceptor.accept(two));
        let text = one.unwrap_err().to_string();
        assert!(text.contains("not valid for name \"other.test\""), "{text}");
        assert!(two.is_err());
        Ok(())
    });
}

/// With TLS 1.3, the client has finished its handshake when the server refuses it, so its first
/// receive returns the error.
#[test]
fn client_without_a_required_certificate_is_refused() {
    everywhere(async |world| {
        let strict = authority().strict_server();
        let (one, two) = shake(world, authority().client(), strict.clone()).await?;
        let (one, two) = (one?.recv().await.unwrap_err(), two.unwrap_err());
        assert!(one.to_string().contains("CertificateRequired"), "{one}");
        assert!(two.to_string().contains("no certificates"), "{two}");

        let foreign = authority().client_known_to(&Authority::new("foreign"));
        let (one, two) = shake(world, foreign, strict.clone()).await?;
        assert!(one?.recv().await.is_err() && two.is_err());

        let known = authority().client_known_to(authority());
        let (one, two) = shake(world, known, strict).await?;
        one?.send("hello").await?;
        let mut two = two?;
        assert_eq!(*two.recv_exact(5).await?, *b"hello");
        assert!(two.peer_certificates().is_some());
        Ok(())
    });
}

#[test]
fn a_client_that_does_not_speak_tls_is_refused() {
    everywhere(async |world| {
        let (mut plain, server) = world.pair().await?;
        plain.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let error = TlsAcceptor::new(authority().server()).accept(server).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        // The client gets an alert, then the end.
        let alert = plain.recv().await?.expect("no alert arrived");
        assert_eq!(alert[0], 21);
        Ok(())
    });
}

#[test]
fn invalid_server_name_is_refused() {
    World::Uring.run(async |world| {
        let (stream, _server) = world.pair().await?;
        let connector = TlsConnector::new(authority().client());
        let error = connector.connect("not a name", stream).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("\"not a name\""), "{error}");
        Ok(())
    });
}

#[test]
fn invalid_certificates_and_keys_are_refused() {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let error = |certificate: &str, key: &str| {
        let made = TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &[]);
        let error = made.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    assert!(TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &["h2"]).is_ok());
    assert_eq!(error("", &key), "TLS certificates: no CERTIFICATE section");
    assert_eq!(
        error("-----BEGIN CERTIFICATE-----\n!\n", &key),
        "TLS certificates: the CERTIFICATE section has no END line"
    );
    assert_eq!(
        error("-----BEGIN CERTIFICATE\n", &key),
        "TLS certificates: a line that begins with -----BEGIN does not end with -----"
    );
    // A key without line breaks; the error must not contain the key.
    assert_eq!(
        error(&certificate, &key.replace('\n', "")),
        "TLS key: the PRIVATE KEY section has no END line"
    );
    assert_eq!(error(&certificate, ""), "TLS key: no private key");
    assert_eq!(error(&certificate, &certificate), "TLS key: no private key");
    assert!(
        error(&certificate, &other).contains("certificates and key: keys may not be consistent")
    );
    let broken = certificate.replace("\nM", "\nA");
    assert!(error(&broken, &key).starts_with("TLS certificates"), "{}", error(&broken, &key));
}

#[test]
fn stalled_handshake_times_out() {
    let limit = Duration::from_millis(20);
    everywhere(async |world| {
        let start = Instant::now();
        let (mut silent, server) = world.pair().await?;
        let acceptor = TlsAcceptor::new(authority().server()).handshake_timeout(limit);
        let error = acceptor.accept(server).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("20ms"), "{error}");
        assert!(start.elapsed() >= limit);
        assert!(silent.recv().await?.is_none(), "the server did not close");

        let (client, _silent) = world.pair().await?;
        let connector = TlsConnector::new(authority().client()).handshake_timeout(limit);
        let error = connector.connect(NAME, client).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        Ok(())
    });
}

/// The test runs in virtual time.
#[test]
fn default_handshake_timeout_is_ten_seconds() {
    World::Simulated.run(async |world| {
        let start = Instant::now();
        let (_silent, server) = world.pair().await?;
        let acceptor = TlsAcceptor::new(authority().server());
        assert_eq!(acceptor.accept(server).await.unwrap_err().kind(), ErrorKind::TimedOut);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(11), "{took:?}");

        let (_silent, server) = world.pair().await?;
        let unlimited = acceptor.handshake_timeout(None);
        let within = annulus::time::timeout(Duration::from_secs(60), unlimited.accept(server));
        assert!(within.await.is_err(), "an unlimited handshake ended");
        Ok(())
    });
}

/// Polls a handshake once, and drops it.
async fn begin_and_drop(handshake: impl Future<Output = io::Result<Session>>) {
    let mut handshake = pin!(handshake);
    poll_fn(|cx| {
        assert!(handshake.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[test]
fn dropping_one_side_ends_the_handshake_of_the_other() {
    everywhere(async |world| {
        let connector = TlsConnector::new(authority().client());
        let acceptor = TlsAcceptor::new(authority().server());

        let (client, server) = world.pair().await?;
        begin_and_drop(connector.connect(NAME, client)).await;
        let error = acceptor.accept(server).await.unwrap_err();
        assert!(ended(&error), "{error}");

        let (client, server): (TcpStream, TcpStream) = world.pair().await?;
        begin_and_drop(acceptor.accept(server)).await;
        let error = connector.connect(NAME, client).await.unwrap_err();
        assert!(ended(&error), "{error}");
        session(world).await?;
        Ok(())
    });
}

/// Returns true for the end of the stream, or for a reset because of unread bytes.
fn ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
