//! `Duration::MAX` and `Duration::ZERO` for every duration that a program can set: the maximum
//! means no limit, and zero ends at once. Nothing may panic or hang.

#[path = "../../annulus/tests/common/durations.rs"]
mod sources;

use crate::common::on_drivers;
use annulus::io::AsyncRecv;
use annulus::net::{ConnectOptions, TcpListener, TcpStream};
use annulus::time::timeout;
use annulus_compat::hyper::Timer;
use annulus_compat::hyper_util::Connector;
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use annulus_compat::tonic::{Channel, Deadlines};
use annulus_compat::tower::{Plain, TimeoutLayer, serve};
use axum::Router;
use axum::routing::get;
use hyper::StatusCode;
use hyper::rt::Timer as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

const MAX_LIMIT: Duration = Duration::MAX;
const ZERO_LIMIT: Duration = Duration::ZERO;
const LIMITS: [Duration; 4] = [
    MAX_LIMIT,
    Duration::from_secs(u64::MAX / 2),
    Duration::from_secs(u32::MAX as u64),
    ZERO_LIMIT,
];

#[test]
fn no_duration_is_forgotten() {
    sources::assert_all_known(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &[
            "hyper.rs write_timeout",
            "hyper_util/connector.rs timeout",
            "hyper_util/connector.rs write_timeout",
            "rustls/acceptor.rs handshake_timeout",
            "rustls/connector.rs handshake_timeout",
            "tonic/channel.rs timeout",
            "tonic/deadlines.rs limit",
            "tower/serve.rs drain_timeout",
            "tower/serve.rs header_read_timeout",
            "tower/serve.rs idle_timeout",
            "tower/serve.rs release_after",
            "tower/serve.rs request_timeout",
            "tower/serve.rs write_timeout",
            "tower/timeout.rs new",
            "tower/timeout.rs with_status_code",
        ],
    );
}

fn router() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// Sends three requests over one connection, and returns how many are answered before it ends.
async fn answers(address: SocketAddr) -> usize {
    let mut received = Vec::new();
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        for _ in 0..3 {
            stream.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            let head = stream.recv_until(b'o', 4096).await?;
            let Some(head) = head else { break };
            received.extend_from_slice(&head);
            // Read the rest of this response.
            while !received.ends_with(b"hello") {
                let Some(more) = stream.recv().await? else { return io::Result::Ok(()) };
                received.extend_from_slice(&more);
            }
        }
        io::Result::Ok(())
    };
    // With a limit of zero, the connection ends or is reset.
    _ = timeout(Duration::from_secs(20), ask)
        .await
        .expect("the server neither answered nor closed");
    received.windows(12).filter(|window| *window == b"HTTP/1.1 200").count()
}

/// Settings of a server that take a duration. `all` means all of them at once.
const SERVER_LIMITS: [&str; 7] = [
    "header_read_timeout",
    "idle_timeout",
    "request_timeout",
    "write_timeout",
    "drain_timeout",
    "release_after",
    "all",
];

fn set<M>(server: Plain<TcpListener, M>, name: &str, limit: Duration) -> Plain<TcpListener, M> {
    match name {
        "header_read_timeout" => server.header_read_timeout(limit),
        "idle_timeout" => server.idle_timeout(limit),
        "request_timeout" => server.request_timeout(limit),
        "write_timeout" => server.write_timeout(limit),
        "drain_timeout" => server.drain_timeout(limit),
        "release_after" => server.release_after(limit),
        _ => SERVER_LIMITS[..6].iter().fold(server, |server, name| set(server, name, limit)),
    }
}

#[test]
fn server_accepts_max_and_zero() {
    on_drivers(|| async {
        for name in SERVER_LIMITS {
            for limit in LIMITS {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let address = listener.local_addr()?;
                let stop = CancellationToken::new();
                let server = serve(listener, router())
                    .with_graceful_shutdown(stop.clone().cancelled_owned());
                let server = annulus::spawn(set(server, name, limit).into_future());
                let answered = answers(address).await;
                assert!(limit == ZERO_LIMIT || answered == 3, "{name} {limit:?}: {answered}");
                stop.cancel();
                let ended = timeout(Duration::from_secs(20), server).await;
                ended.expect("the server did not end").expect("the server panicked")?;
            }
        }
        Ok(())
    });
}

#[test]
fn route_timeout_accepts_max_and_zero() {
    on_drivers(|| async {
        for limit in LIMITS {
            for layer in [
                TimeoutLayer::new(limit),
                TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit),
            ] {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let address = listener.local_addr()?;
                annulus::spawn(serve(listener, router().layer(layer)).into_future());
                // A response that is ready immediately is in time.
                assert_eq!(answers(address).await, 3);
            }
        }
        Ok(())
    });
}

async fn echo_once(listener: TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

#[test]
fn connectors_and_timers_accept_max_and_zero() {
    on_drivers(|| async {
        for limit in LIMITS {
            for (is_whole, connector) in [
                (true, Connector::new().timeout(limit)),
                (false, Connector::new().write_timeout(limit)),
                (false, Connector::new().options(ConnectOptions::new().attempt_delay(limit))),
                (true, Connector::new().options(ConnectOptions::new().timeout(limit))),
            ] {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let uri = format!("http://{}", listener.local_addr()?).parse()?;
                annulus::spawn(echo_once(listener));
                let connected = connector.clone().call(uri).await;
                assert!(connected.is_ok() || (is_whole && limit == ZERO_LIMIT), "{limit:?}");
            }
            let timer = Timer::new();
            let mut sleeping = timer.sleep(limit);
            let slept = timeout(Duration::from_millis(1), sleeping.as_mut()).await;
            assert_eq!(slept.is_ok(), limit == ZERO_LIMIT);
            let io = annulus_compat::hyper::Io::new(()).write_timeout(limit);
            io.into_inner();
        }
        Ok(())
    });
}

#[test]
fn handshake_timeouts_accept_max_and_zero() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .expect("cannot create a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    on_drivers(|| async {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        for limit in LIMITS {
            let acceptor = TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &[])?;
            let acceptor = acceptor.handshake_timeout(limit);
            let connector = TlsConnector::new(config.clone()).handshake_timeout(limit);
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let stream = TcpStream::connect(listener.local_addr()?).await?;
            let accepted = annulus::spawn(async move {
                acceptor.accept(listener.accept().await?.0).await.map(drop)
            });
            let connected = connector.connect("localhost", stream).await;
            assert_eq!(connected.is_ok(), limit != ZERO_LIMIT, "{limit:?}");
            drop(connected);
            assert_eq!(accepted.await?.is_ok(), limit != ZERO_LIMIT, "{limit:?}");
        }
        Ok(())
    });
}

#[test]
fn grpc_timeouts_accept_max_and_zero() {
    on_drivers(|| async {
        for limit in LIMITS {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            annulus::spawn(serve(listener, Deadlines::new(router()).limit(limit)).into_future());
            for timeout in [None, Some(limit)] {
                let mut channel = Channel::new(format!("http://{address}").parse()?)?;
                if let Some(timeout) = timeout {
                    channel = channel.timeout(timeout);
                }
                let request = hyper::Request::new(tonic::body::Body::empty());
                let called = channel.call(request).await;
                assert!(limit == ZERO_LIMIT || called.is_ok(), "{limit:?}: {called:?}");
            }
        }
        Ok(())
    });
}
