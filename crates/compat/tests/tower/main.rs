//! The server for tower and hyper services: unpatched axum routers, on annulus alone and as a
//! guest.

mod errors;
mod half_close;
mod limits;
mod peers;
mod sessions;
mod tls;
mod websocket;

use crate::common;
use annulus::net::{TcpListener, TcpStream};
use annulus::time::{Instant, sleep};
use annulus_compat::OnThread;
use annulus_compat::hyper::{Executor, Io, Timer};
use annulus_compat::tower::{Plain, serve, serve_hyper, serve_with};
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use common::{Outcome, as_guest, everywhere, on_drivers, simulated};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::http::Extensions;
use hyper::service::service_fn;
use hyper_util::service::TowerToHyperService;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{IntoFuture, pending};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

fn router() -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/echo", post(async |body: Bytes| body))
        .route("/panic", get(panics))
        .route("/panic-body", get(panics_later))
        .route("/sleep", get(sleeps))
        .route("/ws", get(websocket::upgrade))
        .route("/endless", get(endless))
}

async fn panics() -> &'static str {
    panic!("panics on request")
}

/// Panics once the head and a first part of the body have been sent.
async fn panics_later() -> Body {
    let parts = futures_util::stream::iter(0..2).then(async |n| {
        assert_eq!(n, 0, "panics on request");
        io::Result::Ok(Bytes::from("first"))
    });
    Body::from_stream(parts)
}

/// Waits with an annulus timer.
async fn sleeps() -> &'static str {
    OnThread::new(sleep(SECOND * 100)).await;
    "slept"
}

async fn endless() -> Body {
    Body::from_stream(futures_util::stream::repeat_with(|| {
        io::Result::Ok(Bytes::from(vec![b'x'; 100_000]))
    }))
}

/// A server that runs until `stop` is cancelled.
struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    ended: annulus::task::JoinHandle<io::Result<()>>,
    errors: Rc<RefCell<Vec<String>>>,
}

/// Starts a server for the router, with these settings.
fn start<F>(address: &str, settings: impl FnOnce(Plain<TcpListener, Make>) -> F) -> Running
where
    F: IntoFuture<Output = io::Result<()>, IntoFuture: 'static>,
{
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, errors) = (CancellationToken::new(), Rc::new(RefCell::new(Vec::new())));
    let reported = errors.clone();
    let make: Make = |_| TowerToHyperService::new(router());
    let server = serve_with(listener, make)
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .on_error(move |error| reported.borrow_mut().push(chain(&error)));
    let ended = annulus::spawn(settings(server).into_future());
    Running { address, stop, ended, errors }
}

type Make = fn(&SocketAddr) -> TowerToHyperService<Router>;

/// Formats an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

async fn client_1(address: SocketAddr) -> Result<http1::SendRequest<Full<Bytes>>, common::Failure> {
    let stream = Io::new(OnThread::new(TcpStream::connect(address).await?));
    let (client, connection) = http1::handshake(stream).await?;
    annulus::spawn(connection.with_upgrades());
    Ok(client)
}

async fn client_2(address: SocketAddr) -> Result<http2::SendRequest<Full<Bytes>>, common::Failure> {
    let stream = Io::new(TcpStream::connect(address).await?);
    let (client, connection) =
        http2::Builder::new(Executor).timer(Timer::new()).handshake(stream).await?;
    annulus::spawn(connection);
    Ok(client)
}

fn to(path: &str, body: &[u8]) -> hyper::Request<Full<Bytes>> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let request = hyper::Request::builder().method(method).header("host", "x");
    let body = Full::new(Bytes::copy_from_slice(body));
    request.uri(format!("http://x{path}")).body(body).unwrap()
}

async fn text(response: hyper::Response<hyper::body::Incoming>) -> Result<Bytes, hyper::Error> {
    Ok(response.into_body().collect().await?.to_bytes())
}

/// Reads everything that a peer sends until the stream ends or fails.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(lease)) = stream.recv().await {
        bytes.extend_from_slice(&lease);
    }
    String::from_utf8(bytes).unwrap()
}

async fn both_versions(address: &str) -> Outcome {
    let server = start(address, |server| server);
    let (mut one, mut two) = (client_1(server.address).await?, client_2(server.address).await?);
    for round in 1..10_u8 {
        let body = vec![round; 10_000 * usize::from(round)];
        assert_eq!(text(one.send_request(to("/echo", &body)).await?).await?, body);
        assert_eq!(text(two.send_request(to("/echo", &body)).await?).await?, body);
    }
    assert_eq!(text(two.send_request(to("/", b"")).await?).await?, "hello");
    let missing = one.send_request(to("/nothing", b"")).await?;
    assert_eq!(missing.status(), 404);
    server.stop.cancel();
    server.ended.await??;
    assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
    Ok(())
}

#[test]
fn a_router_serves_both_versions() {
    everywhere(|| both_versions("127.0.0.1:0"));
    simulated(|_| both_versions("10.0.0.1:80"));
}

#[test]
fn server_can_be_limited_to_one_version() {
    everywhere(async || {
        let one = start("127.0.0.1:0", |server| server.http1_only());
        let two = start("127.0.0.1:0", |server| server.http2_only());
        let answer = client_1(one.address).await?.send_request(to("/", b"")).await?;
        assert_eq!(text(answer).await?, "hello");
        let answer = client_2(two.address).await?.send_request(to("/", b"")).await?;
        assert_eq!(text(answer).await?, "hello");
        assert!(client_2(one.address).await?.send_request(to("/", b"")).await.is_err());
        assert!(client_1(two.address).await?.send_request(to("/", b"")).await.is_err());
        Ok(())
    });
}

/// An HTTP/1 request that begins like the HTTP/2 preface and arrives in pieces.
#[test]
fn version_is_detected_from_the_first_bytes() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server);
        for split in 1..6 {
            let mut client = TcpStream::connect(server.address).await?;
            let request = b"PRIME / HTTP/1.0\r\n\r\n";
            client.send(&request[..split]).await?;
            sleep(SECOND).await;
            client.send(&request[split..]).await?;
            assert!(rest(&mut client).await.starts_with("HTTP/1.0 405"));
        }
        server.stop.cancel();
        server.ended.await??;
        assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
        Ok(())
    });
}

#[test]
fn tower_and_hyper_services_are_served() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let tower = annulus::spawn(serve(listener, router()).into_future());
        let mut client = client_1(address).await?;
        assert_eq!(text(client.send_request(to("/", b"")).await?).await?, "hello");
        tower.abort();

        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        // Neither the service nor its future is `Send`.
        let count = Rc::new(Cell::new(0));
        let counting = service_fn(move |_| {
            let count = count.clone();
            async move {
                count.update(|count| count + 1);
                sleep(Duration::from_millis(1)).await;
                Ok::<_, Infallible>(hyper::Response::new(count.get().to_string()))
            }
        });
        annulus::spawn(serve_hyper(listener, counting).into_future());
        for expected in ["1", "2", "3"] {
            let mut client = client_1(address).await?;
            assert_eq!(text(client.send_request(to("/", b"")).await?).await?, expected);
        }
        Ok(())
    });
}

#[test]
fn a_service_knows_its_peer() {
    everywhere(async || {
        let show = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string();
        let router = Router::new().route("/", get(show));
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = serve_with(listener, move |peer: &SocketAddr| {
            TowerToHyperService::new(router.clone().layer(Extension(ConnectInfo(*peer))))
        });
        annulus::spawn(server.into_future());
        let mut client = TcpStream::connect(address).await?;
        client.send("GET / HTTP/1.0\r\n\r\n").await?;
        let answer = rest(&mut client).await;
        assert!(answer.ends_with(&client.local_addr()?.to_string()), "{answer}");
        Ok(())
    });
}

#[test]
fn graceful_shutdown_finishes_requests_in_progress() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server);
        let (mut slow_1, mut slow_2) =
            (client_1(server.address).await?, client_2(server.address).await?);
        let slow_1 =
            annulus::spawn(
                async move { text(slow_1.send_request(to("/sleep", b"")).await?).await },
            );
        let slow_2 =
            annulus::spawn(
                async move { text(slow_2.send_request(to("/sleep", b"")).await?).await },
            );
        let mut idle = TcpStream::connect(server.address).await?;
        idle.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        sleep(SECOND).await;
        let begun = Instant::now();
        server.stop.cancel();
        assert!(rest(&mut idle).await.ends_with("hello"));
        assert!(begun.elapsed() < SECOND, "the idle connection was not closed at once");
        sleep(SECOND).await;
        assert!(TcpStream::connect(server.address).await.is_err(), "the listener is still open");
        assert!(!server.ended.is_finished());
        assert_eq!((slow_1.await??, slow_2.await??), ("slept".into(), "slept".into()));
        server.ended.await??;
        assert!(begun.elapsed() < SECOND * 101);
        Ok(())
    });
}

#[test]
fn graceful_shutdown_on_real_drivers() {
    everywhere(async || {
        let (begun, has_begun) = oneshot::channel();
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let once = Rc::new(Cell::new(Some((begun, may_go_on))));
        let slow = service_fn(move |_| {
            let (begun, may_go_on) = once.take().expect("a second request arrived");
            async move {
                begun.send(()).unwrap();
                may_go_on.await.unwrap();
                Ok::<_, Infallible>(hyper::Response::new("finished".to_owned()))
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let server = serve_hyper(listener, slow)
            .with_graceful_shutdown(stop.clone().cancelled_owned())
            .into_future();
        let ended = annulus::spawn(server);
        let mut client = client_1(address).await?;
        let asked =
            annulus::spawn(async move { text(client.send_request(to("/", b"")).await?).await });
        has_begun.await?;
        stop.cancel();
        go_on.send(()).unwrap();
        assert_eq!(asked.await??, "finished");
        ended.await??;
        assert!(TcpStream::connect(address).await.is_err(), "the listener is still open");
        Ok(())
    });
}

#[test]
fn truncated_body_is_an_error_in_the_handler() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let mut client = TcpStream::connect(server.address).await?;
        client.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await?;
        client.shutdown().await?;
        // axum's body extractor fails.
        let answer = rest(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        server.stop.cancel();
        server.ended.await??;
        Ok(())
    });
}

#[test]
fn invalid_http_is_reported() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let mut client = TcpStream::connect(server.address).await?;
        client.send("SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n").await?;
        assert!(rest(&mut client).await.starts_with("HTTP/1.1 400"));
        server.stop.cancel();
        server.ended.await??;
        assert_eq!(server.errors.borrow().len(), 1, "{:?}", server.errors);
        Ok(())
    });
}

#[test]
fn dropped_server_drops_its_connections() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let mut client = TcpStream::connect(server.address).await?;
        client.send("GET /sleep HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let mut other = client_1(server.address).await?;
        assert_eq!(text(other.send_request(to("/", b"")).await?).await?, "hello");
        server.ended.abort();
        assert_eq!(rest(&mut client).await, "");
        assert!(TcpStream::connect(server.address).await.is_err(), "the listener is still open");
        Ok(())
    });
}

#[test]
fn handler_uses_annulus_in_an_on_thread() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server);
        let begun = Instant::now();
        let mut client = client_1(server.address).await?;
        assert_eq!(text(client.send_request(to("/sleep", b"")).await?).await?, "slept");
        assert!(limits::about(100, begun.elapsed()));
        Ok(())
    });
}

/// A server whose shutdown signal never completes keeps running. It does nothing until its future
/// is polled.
#[test]
fn a_server_without_a_signal_runs_until_it_is_dropped() {
    on_drivers(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = serve(listener, router()).with_graceful_shutdown(pending());
        let asked = async {
            let mut client = client_1(address).await?;
            text(client.send_request(to("/", b"")).await?).await.map_err(common::Failure::from)
        };
        let server = std::pin::pin!(server.into_future());
        let asked = std::pin::pin!(asked);
        match futures_util::future::select(server, asked).await {
            futures_util::future::Either::Right((asked, _)) => assert_eq!(asked?, "hello"),
            futures_util::future::Either::Left((ended, _)) => panic!("{ended:?}"),
        }
        Ok(())
    });
}
