//! Freed memory, counted by the allocator, in virtual time.

use crate::*;
use annulus::net::TcpListener;
use annulus_compat::rustls::{TlsAcceptor, TlsConnector, TlsStream};
use annulus_compat::tower::serve_hyper;
use held::held;
use hyper::service::service_fn;
use rustls::{ClientConfig, RootCertStore};
use server::answer;
use std::future::IntoFuture;

const CONNECTION_COUNT: usize = 10;

/// A lower bound for hyper's two 8 KiB buffers per connection, in bytes.
const MIN_BUFFER_BYTES: isize = 12_000 * CONNECTION_COUNT as isize;

/// An upper bound for all other changes, in bytes.
const MAX_OTHER_BYTES: isize = 500 * CONNECTION_COUNT as isize;

/// Gets responses over connections to 10.0.0.1:80, and returns the bytes freed some seconds later.
async fn freed() -> Result<isize, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTION_COUNT {
        let mut client = TcpStream::connect("10.0.0.1:80").await?;
        ask(&mut client).await?;
        clients.push(client);
    }
    let answered = held();
    sleep(SECOND * 5).await;
    let freed = answered - held();
    for client in &mut clients {
        ask(client).await?;
    }
    Ok(freed)
}

#[test]
fn buffers_of_idle_connections_are_freed() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        annulus::spawn(serve_hyper(listener, service_fn(answer)).into_future());
        let freed = freed().await?;
        assert!(freed > MIN_BUFFER_BYTES, "{freed}");
        Ok(())
    });
}

#[test]
fn buffers_are_kept_if_release_is_off() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let server = serve_hyper(listener, service_fn(answer)).release_after(None);
        annulus::spawn(server.into_future());
        let freed = freed().await?;
        assert!(freed < MAX_OTHER_BYTES, "{freed}");
        Ok(())
    });
}

/// Creates an acceptor, and a connector that trusts it.
fn tls() -> (TlsAcceptor, TlsConnector) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let acceptor = TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &[]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    (acceptor, TlsConnector::new(config))
}

async fn ask_over_tls(client: &mut TlsStream<TcpStream>) -> Outcome {
    use annulus::io::{AsyncRecv, AsyncSend};
    client.send(GET_REQUEST).await?;
    let head = client.recv_until(b'\n', 100).await?.expect("no answer arrived");
    assert!(head.starts_with(b"HTTP/1.1 200"));
    while client.recv_until(b'\n', 100).await?.expect("the head ended early").len() > 2 {}
    assert_eq!(&*client.recv_exact(1).await?, b"x");
    Ok(())
}

#[test]
fn tls_session_survives_a_release_and_closes_cleanly() {
    simulated(async |_| {
        use annulus::io::AsyncRecv;
        let (acceptor, connector) = tls();
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let stop = tokio_util::sync::CancellationToken::new();
        let server = serve_hyper(listener, service_fn(answer))
            .tls(acceptor)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        let ended = annulus::spawn(server.into_future());
        let mut clients = Vec::new();
        for _ in 0..CONNECTION_COUNT {
            let stream = TcpStream::connect("10.0.0.1:80").await?;
            let mut client = connector.connect("localhost", stream).await?;
            ask_over_tls(&mut client).await?;
            clients.push(client);
        }
        let answered = held();
        sleep(SECOND * 5).await;
        let freed = answered - held();
        assert!(freed > MIN_BUFFER_BYTES, "{freed}");
        for client in &mut clients {
            ask_over_tls(client).await?;
        }
        sleep(SECOND * 5).await;
        stop.cancel();
        for mut client in clients {
            // An end without `close_notify` would be an error.
            assert!(client.recv().await?.is_none());
        }
        ended.await??;
        Ok(())
    });
}

/// An upper bound for the memory of an idle WebSocket in bytes. Its read buffer has 4 KiB.
const MAX_SESSION_BYTES: isize = 10_000;

/// Opens WebSockets at 10.0.0.1:80, and returns how many bytes each has allocated.
async fn session_bytes() -> Result<isize, Failure> {
    use annulus::io::AsyncRecv;
    let (mut clients, mut before) = (Vec::new(), 0);
    for number in 0..=CONNECTION_COUNT {
        // The first connection allocates memory that all share.
        if number == 1 {
            before = held();
        }
        let mut client = TcpStream::connect("10.0.0.1:80").await?;
        client.send(UPGRADE_REQUEST).await?;
        while client.recv_until(b'\n', 1000).await?.expect("the head ended early").len() > 2 {}
        // A masked frame with a text of one byte, and its echo.
        client.send(vec![0x81, 0x81, 0, 0, 0, 0, b'x']).await?;
        assert_eq!(&*client.recv_exact(3).await?, [0x81, 1, b'x']);
        clients.push(client);
    }
    sleep(SECOND * 5).await;
    Ok((held() - before) / CONNECTION_COUNT as isize)
}

const UPGRADE_REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn idle_websockets_hold_little_memory() {
    use annulus_compat::tower::{WebSocketUpgrade, serve};
    use futures_util::{SinkExt, StreamExt};
    let bytes_with = |size: Option<usize>| {
        let bytes = std::rc::Rc::new(std::cell::Cell::new(0));
        let found = bytes.clone();
        simulated(async move |_| {
            let echo = async move |upgrade: WebSocketUpgrade| {
                let upgrade = size.into_iter().fold(upgrade, WebSocketUpgrade::read_buffer_size);
                upgrade.on_upgrade(async |mut socket| {
                    while let Some(Ok(message)) = socket.next().await {
                        _ = socket.send(message).await;
                    }
                })
            };
            let router = axum::Router::new().route("/", axum::routing::any(echo));
            annulus::spawn(serve(TcpListener::bind("10.0.0.1:80")?, router).into_future());
            found.set(session_bytes().await?);
            Ok(())
        });
        bytes.get()
    };
    let (default, large) = (bytes_with(None), bytes_with(Some(128 * 1024)));
    assert!(default < MAX_SESSION_BYTES, "{default} bytes per session");
    assert!(large > 128 * 1024, "{large} bytes per session");
}
