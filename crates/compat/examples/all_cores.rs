//! A template for a service: axum on all cores, on annulus alone. It has one runtime and one
//! PostgreSQL connection pool per core, shared state, limits, and Prometheus metrics. On SIGINT or
//! SIGTERM it stops accepting, and exits within ten seconds, once the requests in progress have
//! been answered. Without PostgreSQL it reports that and keeps running, and requests that need it
//! get 503.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example all_cores -- 127.0.0.1:8080
//! /var/run/postgresql/.s.PGSQL.5432 $USER`, then `curl 127.0.0.1:8080`, `curl -X PUT -d text
//! 127.0.0.1:8080/notes/one`, and GET `/notes/one`, `/square/7` and `/metrics`.

use annulus::Handle;
use annulus::net::{ConnectionLimit, KeepAlive, ListenOptions, TcpStream, UnixStream};
use annulus::shards::{ShardedListener, Spread};
use annulus::signal::{Signal, signals};
use annulus_compat::{Listen, OnThread, tower::serve_with};
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::{Extension, Router, http::StatusCode, middleware::map_request_with_state, routing::get};
use deadpool::managed::{Manager, Metrics, Pool, RecycleError, RecycleResult};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};
use tokio_util::sync::CancellationToken;
use tower::Layer;

/// Timeout of a request, and of the remaining requests at shutdown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The state of one shard's handlers.
#[derive(Clone)]
struct App {
    index: usize,
    /// The runtimes of all shards.
    runtimes: Arc<[Handle]>,
    database: Pool<Postgres>,
    shared: Arc<Shared>,
}

/// The state that all shards share.
pub(crate) struct Shared {
    postgres: Postgres,
    notes: Mutex<HashMap<String, String>>,
    requests: Vec<Count>,
}

impl Shared {
    pub(crate) fn new(shards: usize, socket: String, user: String) -> Arc<Self> {
        let (notes, requests) = (Mutex::default(), (0..shards).map(|_| Count::default()).collect());
        Arc::new(Self { postgres: Postgres { socket, user }, notes, requests })
    }
}

/// Number of a shard's requests, in its own cache line so that cores do not contend.
#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicU64);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8080".into());
    let socket = arguments.next().unwrap_or("/var/run/postgresql/.s.PGSQL.5432".into());
    let user = arguments.next().unwrap_or("postgres".into());
    let cores = annulus::shards::cpus()?.len();
    let (shared, stop) = (Shared::new(cores, socket, user), CancellationToken::new());
    // One limit is enough: shard 0 accepts for all shards.
    let options = ListenOptions::new().limit(&ConnectionLimit::new(10_000)).keepalive(KEEP_ALIVE);
    let listener = ShardedListener::bind(&*address, &options, cores, Spread::LeastConnections)?;
    println!("listening on {}", listener.local_addr());
    Ok(annulus::shards(cores, async |shard| {
        let (listener, stop) = (listener.open(&shard)?, stop.clone());
        serve(listener, shard.index(), shard.handles(), stop, shared.clone()).await
    })
    .map(drop)?)
}

/// Serves on one shard until `stop` is cancelled.
pub(crate) async fn serve<L>(
    listener: L,
    index: usize,
    runtimes: &[Handle],
    stop: CancellationToken,
    shared: Arc<Shared>,
) -> Result<(), Error>
where
    L: Listen<Stream = TcpStream, Peer = SocketAddr> + 'static,
{
    let database = Pool::builder(shared.postgres.clone()).max_size(8).build()?;
    if index == 0 {
        let (mut signals, stop) = (signals(&[Signal::SIGINT, Signal::SIGTERM])?, stop.clone());
        annulus::spawn(async move { signals.recv().await.map(|_| stop.cancel()) });
        annulus::spawn(report_database(database.clone()));
    }
    let router = router(App { index, runtimes: runtimes.into(), database, shared });
    let service = move |peer: &SocketAddr| {
        TowerToHyperService::new(Extension(ConnectInfo(*peer)).layer(router.clone()))
    };
    let server = serve_with(listener, service)
        .request_timeout(REQUEST_TIMEOUT)
        .on_error(|error| eprintln!("{error}"))
        .with_graceful_shutdown(stop.cancelled_owned())
        .drain_timeout(REQUEST_TIMEOUT);
    Ok(server.await?)
}

fn router(app: App) -> Router {
    let count = async |State(app): State<App>, request: Request| {
        app.shared.requests[app.index].0.fetch_add(1, Ordering::Relaxed);
        request
    };
    Router::new()
        .route("/", get(hello))
        .route("/notes/{name}", get(note).put(set_note))
        .route("/square/{number}", get(square))
        .route("/metrics", get(metrics))
        .layer(map_request_with_state(app.clone(), count))
        .with_state(app)
}

async fn hello(State(app): State<App>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
    // A dual-stack listener reports IPv4 addresses as ::ffff:192.0.2.1.
    let (ip, port) = (peer.ip().to_canonical(), peer.port());
    format!("hello, {}, from shard {}\n", SocketAddr::new(ip, port), app.index)
}

async fn note(State(app): State<App>, Path(name): Path<String>) -> Result<String, StatusCode> {
    app.shared
        .notes
        .lock()
        .expect("a shard panicked")
        .get(&name)
        .cloned()
        .ok_or(StatusCode::NOT_FOUND)
}

async fn set_note(State(app): State<App>, Path(name): Path<String>, text: String) {
    app.shared.notes.lock().expect("a shard panicked").insert(name, text);
}

async fn square(State(app): State<App>, Path(number): Path<i32>) -> Result<String, Unavailable> {
    let client = app.database.get().await.map_err(unavailable)?;
    let row = client.query_one("SELECT $1::int4::int8 * $1", &[&number]).await;
    Ok(row.map_err(unavailable)?.get::<_, i64>(0).to_string())
}

type Unavailable = (StatusCode, String);

fn unavailable(error: impl Display) -> Unavailable {
    (StatusCode::SERVICE_UNAVAILABLE, format!("PostgreSQL: {error}\n"))
}

/// Returns the metrics of all runtimes and of this program.
async fn metrics(State(app): State<App>) -> String {
    let (mut stats, mut own) = (Vec::new(), "# TYPE http_requests_total counter\n".to_owned());
    for (shard, (handle, count)) in app.runtimes.iter().zip(&app.shared.requests).enumerate() {
        stats.extend(handle.stats().await.map(|stats| (shard.to_string(), stats)));
        let count = count.0.load(Ordering::Relaxed);
        own += &format!("http_requests_total{{shard=\"{shard}\"}} {count}\n");
    }
    annulus::stats::prometheus(stats.iter().map(|(shard, stats)| (&**shard, stats))) + &own
}

#[derive(Clone)]
struct Postgres {
    socket: String,
    user: String,
}

async fn report_database(pool: Pool<Postgres>) {
    let Postgres { socket, user } = pool.manager();
    match pool.get().await {
        Ok(_) => eprintln!("PostgreSQL at {socket}: connected as {user}"),
        Err(error) => eprintln!("PostgreSQL at {socket}, as {user}: {error}"),
    }
}

impl Manager for Postgres {
    type Type = Client;
    type Error = Error;

    async fn create(&self) -> Result<Client, Error> {
        let Self { socket, user } = self.clone();
        let connecting = OnThread::new(async move {
            let stream = UnixStream::connect(socket).await?;
            let mut config = Config::new();
            Ok::<_, Error>(config.user(user).dbname("postgres").connect_raw(stream, NoTls).await?)
        });
        let (client, connection) = connecting.await?;
        annulus::spawn(connection); // The task ends once the client is dropped.
        Ok(client)
    }

    async fn recycle(&self, client: &mut Client, _: &Metrics) -> RecycleResult<Error> {
        let closed = RecycleError::message("the server has closed the connection");
        if client.is_closed() { Err(closed) } else { Ok(()) }
    }
}
