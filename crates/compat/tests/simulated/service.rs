//! The service on hyper's HTTP/1, on hyper's HTTP/2 and with axum's router, each written as in a
//! real program.

use crate::simulated::ledger::Ledger;
use annulus::net::{TcpListener, TcpStream};
use annulus::time::{Instant, sleep, timeout};
use annulus_compat::hyper::{Executor, Io, Timer};
use annulus_compat::tower;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Response, StatusCode};
use std::cell::Cell;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// Age at which a connection stops accepting requests. It ends at most `MAX_DRAIN_TIME` later.
const MAX_AGE: Duration = Duration::from_secs(20);
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);
/// Time limit for request heads and for replies to pings, and each limit of the axum server.
const STEP_TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Http1,
    Http2,
    /// axum's router on `tower::serve`, over HTTP/1.
    Axum,
}

/// Measurements of the server, across its restarts.
#[derive(Clone, Default)]
pub(crate) struct Gauge(Rc<Values>);

#[derive(Default)]
struct Values {
    open: Cell<usize>,
    most_memory: Cell<usize>,
    oldest: Cell<Duration>,
}

/// Records how long a connection was open.
struct Timed(Gauge, Instant);

impl Gauge {
    /// Samples the runtime ten times per second.
    async fn watch(self) {
        while let Some(stats) = annulus::stats() {
            self.0.open.set(stats.resources.streams);
            self.0.most_memory.set(self.0.most_memory.get().max(stats.memory.held));
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the number of open streams at the last sample.
    pub(crate) fn open(&self) -> usize {
        self.0.open.get()
    }

    /// Returns the highest sampled memory of all streams, in bytes.
    pub(crate) fn most_memory(&self) -> usize {
        self.0.most_memory.get()
    }

    /// Returns the longest time that a hyper connection was open.
    pub(crate) fn oldest(&self) -> Duration {
        self.0.oldest.get()
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let oldest = &self.0.0.oldest;
        oldest.set(oldest.get().max(self.1.elapsed()));
    }
}

pub(crate) const MAX_CONNECTION_TIME: Duration = Duration::from_secs(20 + 5 + 1);

/// Runs the program of the server's host.
pub(crate) async fn run(kind: Kind, ledger: Ledger, gauge: Gauge) -> io::Result<()> {
    annulus::spawn(gauge.clone().watch());
    let listener = TcpListener::bind("0.0.0.0:80")?;
    if kind == Kind::Axum {
        return serve_axum(listener, ledger).await;
    }
    loop {
        let (stream, _) = listener.accept().await?;
        let (ledger, timed) = (ledger.clone(), Timed(gauge.clone(), Instant::now()));
        annulus::spawn(async move {
            match kind {
                Kind::Http2 => serve_http2(stream, of_hyper(ledger)).await,
                _ => serve_http1(stream, of_hyper(ledger)).await,
            }
            drop(timed);
        });
    }
}

/// Serves axum's router with `tower::serve`, which needs no tokio runtime.
async fn serve_axum(listener: TcpListener, ledger: Ledger) -> io::Result<()> {
    let router = axum::Router::new()
        .route("/deposit/{key}/{amount}", post(deposit))
        .route("/echo", post(async |body: Bytes| body))
        .route("/balance", get(async |State(ledger): State<Ledger>| ledger.balance().to_string()))
        .with_state(ledger);
    let server = tower::serve(listener, router);
    let server = server.header_read_timeout(STEP_TIMEOUT).idle_timeout(STEP_TIMEOUT);
    server.request_timeout(STEP_TIMEOUT).write_timeout(STEP_TIMEOUT).await
}

async fn serve_http1<S, B>(stream: TcpStream, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut builder = http1::Builder::new();
    builder.timer(Timer::new()).header_read_timeout(STEP_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(Io::new(stream), service));
    if timeout(MAX_AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        // The peer causes connection errors.
        _ = timeout(MAX_DRAIN_TIME, connection).await;
    }
}

async fn serve_http2<S, B>(stream: TcpStream, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: 'static,
    B: Body<Data: Send> + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut builder = http2::Builder::new(Executor);
    builder.timer(Timer::new()).keep_alive_interval(STEP_TIMEOUT).keep_alive_timeout(STEP_TIMEOUT);
    // The date comes from the real clock, and its Huffman-coded length depends on its digits.
    builder.auto_date_header(false);
    let mut connection = pin!(builder.serve_connection(Io::new(stream), service));
    if timeout(MAX_AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        _ = timeout(MAX_DRAIN_TIME, connection).await;
    }
}

type Answer = Result<Response<Full<Bytes>>, hyper::Error>;
type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

fn of_hyper(
    ledger: Ledger,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Full<Bytes>>,
    Error = hyper::Error,
    Future = LocalFuture<Answer>,
> {
    service_fn(move |request| Box::pin(answer(ledger.clone(), request)) as LocalFuture<Answer>)
}

async fn answer(ledger: Ledger, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let mut parts = path.split('/').skip(1);
    let body = match (request.method(), parts.next(), parts.next(), parts.next()) {
        (&Method::POST, Some("deposit"), Some(key), Some(amount)) => {
            let (Ok(id), Ok(amount)) = (key.parse(), amount.parse()) else {
                return Ok(refusal(StatusCode::BAD_REQUEST));
            };
            ledger.deposit(id, amount).await;
            Bytes::from(key.to_owned())
        }
        (&Method::POST, Some("echo"), None, None) => {
            request.into_body().collect().await?.to_bytes()
        }
        (&Method::GET, Some("balance"), None, None) => Bytes::from(ledger.balance().to_string()),
        _ => return Ok(refusal(StatusCode::NOT_FOUND)),
    };
    Ok(Response::new(Full::new(body)))
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

async fn deposit(State(ledger): State<Ledger>, Path((key, amount)): Path<(u64, u64)>) -> String {
    ledger.deposit(key, amount).await;
    key.to_string()
}
