//! Tests the table in `annulus_compat::tower`: which axum handlers and layers work on annulus
//! alone, with a tokio runtime on a separate thread, and as a guest of tokio. Each row uses the
//! crate that it mentions.

use crate::common;

use annulus::net::{TcpListener, TcpStream};
use annulus_compat::tower::{TimeoutLayer, serve};
use annulus_compat::{OnThread, with_tokio};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{Response, Sse};
use axum::{Router, routing::get};
use common::{Outcome, as_guest, on_drivers, simulated};
use futures_util::stream::iter;
use futures_util::{SinkExt, StreamExt};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{IntoFuture, pending};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower::buffer::Buffer;
use tower_http::services::ServeDir;

const SHORT_TIME: Duration = Duration::from_millis(1);
/// Paths that need no tokio runtime, and the end of the response.
const NATIVE_PATHS: [(&str, &str); 4] = [
    ("/hello/you", "hello, you"),
    ("/events", "data: 2\n\n"),
    ("/own-timer", "waited"),
    ("/late", "408"),
];
/// Paths that need a tokio runtime.
const TOKIO_PATHS: [(&str, &str); 9] = [
    ("/layer", "hello"),
    ("/timer", "waited"),
    ("/kept-alive", "data: 2\n\n"),
    ("/buffer", "42"),
    ("/spawn", "42"),
    ("/file", "[lints.clippy]"),
    ("/files/Cargo.toml", "undocumented_unsafe_blocks = \"deny\"\n"),
    ("/socket", "connected"),
    ("/reqwest", "hello, you"),
];

#[derive(Clone)]
struct Shared {
    address: SocketAddr,
    /// For each WebSocket, whether its message has arrived.
    got: mpsc::UnboundedSender<bool>,
}

fn events() -> impl futures_util::Stream<Item = Result<Event, Infallible>> {
    iter(1..=2).map(|number| Ok(Event::default().data(number.to_string())))
}

async fn kept_alive() -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    Sse::new(events()).keep_alive(KeepAlive::new())
}

async fn buffered() -> String {
    let double = tower::service_fn(async |number: u32| Ok::<_, Infallible>(2 * number));
    let double = Buffer::new(double, 8);
    double.oneshot(21).await.expect("the service failed").to_string()
}

async fn file() -> String {
    let text = tokio::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).await;
    text.expect("cannot read Cargo.toml")
        .lines()
        .find(|line| line.contains("clippy"))
        .unwrap_or("")
        .to_owned()
}

async fn upgrade(State(shared): State<Shared>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async move |mut socket: WebSocket| {
        let received = socket.recv().await;
        let got = matches!(&received, Some(Ok(Message::Text(text))) if text.as_str() == "hello");
        if let Some(Ok(message)) = received {
            _ = socket.send(message).await;
        }
        _ = shared.got.send(got);
    })
}

async fn own_upgrade(
    State(shared): State<Shared>,
    upgrade: annulus_compat::tower::WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(async move |mut socket| {
        let received = socket.next().await;
        let got = matches!(&received, Some(Ok(message)) if message.to_text().is_ok_and(|text| text == "hello"));
        _ = shared.got.send(got);
    })
}

fn router(shared: Shared) -> Router {
    let late = get(pending::<&'static str>).layer(TimeoutLayer::new(SHORT_TIME));
    let layer = tower_http::timeout::TimeoutLayer::with_status_code(
        StatusCode::REQUEST_TIMEOUT,
        Duration::from_secs(60),
    );
    Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}")))
        .route("/events", get(async || Sse::new(events())))
        .route("/own-timer", get(async || OnThread::new(waits()).await))
        .route("/late", late)
        .route("/layer", get(async || "hello").layer(layer))
        .route(
            "/timer",
            get(async || {
                tokio::time::sleep(SHORT_TIME).await;
                "waited"
            }),
        )
        .route("/kept-alive", get(kept_alive))
        .route("/buffer", get(buffered))
        .route(
            "/spawn",
            get(async || tokio::spawn(async { "42" }).await.expect("the task panicked")),
        )
        .route("/file", get(file))
        .nest_service("/files", ServeDir::new(env!("CARGO_MANIFEST_DIR")))
        .route(
            "/socket",
            get(async |State(shared): State<Shared>| {
                tokio::net::TcpStream::connect(shared.address)
                    .await
                    .map(|_| "connected")
                    .expect("the server does not listen")
            }),
        )
        .route(
            "/reqwest",
            get(async |State(shared): State<Shared>| {
                let page = reqwest::get(format!("http://{}/hello/you", shared.address)).await;
                page.expect("no answer arrived").text().await.expect("the answer is not text")
            }),
        )
        .route("/own-ws", get(own_upgrade))
        .route("/ws", get(upgrade))
        .with_state(shared)
}

async fn waits() -> &'static str {
    annulus::time::sleep(SHORT_TIME).await;
    "waited"
}

/// A server and the errors that it has reported.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    errors: Rc<RefCell<Vec<String>>>,
    got: mpsc::UnboundedReceiver<bool>,
}

fn start(address: &str) -> std::io::Result<Server> {
    start_with(address, router)
}

fn start_with(address: &str, router: impl FnOnce(Shared) -> Router) -> std::io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    let (address, (sender, got)) = (listener.local_addr()?, mpsc::unbounded_channel());
    let (stop, errors) = (CancellationToken::new(), Rc::new(RefCell::new(Vec::new())));
    let reported = errors.clone();
    let server = serve(listener, router(Shared { address, got: sender }))
        .on_error(move |error| reported.borrow_mut().push(error.to_string()))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    annulus::spawn(server.into_future());
    Ok(Server { address, stop, errors, got })
}

async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut client = TcpStream::connect(address).await?;
    client.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await?;
    let mut answer = Vec::new();
    while let Some(lease) = client.recv().await? {
        answer.extend_from_slice(&lease);
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn answers(server: &Server, rows: &[(&str, &str)]) -> Outcome {
    for (path, expected) in rows {
        let answer = ask(server.address, path).await?;
        assert!(answer.contains(expected), "{path}: {answer}\n{:?}", server.errors.borrow());
    }
    assert!(server.errors.borrow().is_empty(), "{:?}", server.errors.borrow());
    Ok(())
}

/// Returns true if a WebSocket receives what its client sends.
async fn speaks_websocket(server: &mut Server, path: &str) -> Result<bool, common::Failure> {
    let stream = annulus_compat::SendStream::new(TcpStream::connect(server.address).await?);
    let url = format!("ws://{}{path}", server.address);
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await?;
    socket.send("hello".into()).await?;
    Ok(server.got.recv().await.expect("the handler did not end"))
}

/// Checks that the handler of this path panics without tokio, and that the reported error says how
/// to fix it.
async fn is_refused(server: &Server, path: &str) -> Outcome {
    let answer = ask(server.address, path).await?;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{path}: {answer}");
    let error = server.errors.borrow_mut().pop().expect("no error was reported");
    for part in ["the service panicked: th", "annulus_compat::with_tokio()", "annulus_tokio::run"] {
        assert!(error.contains(part), "{path}: {error}");
    }
    Ok(())
}

#[test]
fn without_tokio_the_error_says_how_to_fix_it() {
    on_drivers(async || {
        let mut server = start("127.0.0.1:0")?;
        answers(&server, &NATIVE_PATHS).await?;
        assert!(speaks_websocket(&mut server, "/own-ws").await?);
        for (path, _) in TOKIO_PATHS {
            is_refused(&server, path).await?;
        }
        server.stop.cancel();
        Ok(())
    });
}

#[test]
fn with_tokio_everything_works_except_axum_upgrades() {
    on_drivers(async || {
        let _tokio = with_tokio()?;
        let mut server = start("127.0.0.1:0")?;
        answers(&server, &NATIVE_PATHS).await?;
        answers(&server, &TOKIO_PATHS).await?;
        assert!(speaks_websocket(&mut server, "/own-ws").await?);
        // axum's own upgrade uses the socket on tokio's thread, where it fails.
        assert!(!speaks_websocket(&mut server, "/ws").await?);
        server.stop.cancel();
        Ok(())
    });
    assert!(tokio::runtime::Handle::try_current().is_err(), "the guard was not dropped");
}

#[test]
fn with_tokio_is_one_runtime_for_all_threads() {
    let ids = [(), ()].map(|()| {
        std::thread::spawn(|| {
            let _tokio = with_tokio().expect("cannot create a runtime");
            tokio::runtime::Handle::current().id()
        })
    });
    let [one, other] = ids.map(|thread| thread.join().expect("the thread panicked"));
    assert_eq!(one, other);
}

#[test]
fn as_a_guest_everything_works() {
    as_guest(async {
        let mut server = start("127.0.0.1:0")?;
        answers(&server, &NATIVE_PATHS).await?;
        answers(&server, &TOKIO_PATHS).await?;
        assert!(speaks_websocket(&mut server, "/ws").await?);
        assert!(speaks_websocket(&mut server, "/own-ws").await?);
        server.stop.cancel();
        Ok(())
    });
}

#[test]
fn annulus_timeout_layer_follows_virtual_time() {
    simulated(async |_| {
        let server = start("10.0.0.1:80")?;
        answers(&server, &NATIVE_PATHS).await?;
        server.stop.cancel();
        Ok(())
    });
}

#[cfg(annulus_weekly)]
mod sqlx_too {
    use super::*;
    use crate::postgres::Postgres;
    use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

    /// Starts a server whose handler queries PostgreSQL with sqlx.
    fn asking_by_sqlx(port: u16) -> std::io::Result<Server> {
        let ask = async move || {
            let at = PgConnectOptions::new().host("127.0.0.1").port(port);
            let at = at.username("annulus").database("postgres");
            let pool = PgPoolOptions::new().connect_with(at).await.expect("cannot connect");
            let answer = sqlx::query_scalar::<_, i64>("SELECT $1::int8 * 7").bind(6_i64);
            answer.fetch_one(&pool).await.expect("the query failed").to_string()
        };
        start_with("127.0.0.1:0", |_| Router::new().route("/sqlx", get(ask)))
    }

    #[test]
    fn handler_with_sqlx_needs_tokio() {
        let Some(postgres) = Postgres::start() else { return };
        let port = postgres.port;
        on_drivers(async || {
            let server = asking_by_sqlx(port)?;
            is_refused(&server, "/sqlx").await?;
            let _tokio = with_tokio()?;
            answers(&server, &[("/sqlx", "42")]).await
        });
        as_guest(async { answers(&asking_by_sqlx(port)?, &[("/sqlx", "42")]).await });
    }
}
