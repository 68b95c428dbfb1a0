//! An axum program written for tokio: shared state, a background task, timers, blocking calls, and
//! a graceful shutdown. Only the listener's type is generic.

use axum::extract::{Path, State};
use axum::serve::Listener;
use axum::{Router, routing::get};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// State that requests share.
#[derive(Clone)]
struct Counts {
    requests: Arc<AtomicU64>,
    /// Number of requests at the last tick of the background task.
    published: watch::Receiver<u64>,
}

/// Serves until `stop` completes, then finishes the requests in progress.
pub(crate) async fn serve<L>(
    listener: L,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: Listener<Addr: std::fmt::Debug>,
{
    axum::serve(listener, router()).with_graceful_shutdown(stop).await
}

fn router() -> Router {
    let (publish, published) = watch::channel(0);
    let requests = Arc::<AtomicU64>::default();
    tokio::spawn(publish_each_tick(requests.clone(), publish));
    Router::new()
        .route("/hello/{name}", get(hello))
        .route("/count", get(count))
        .route("/digest/{number}", get(digest))
        .route("/slow", get(slow))
        .with_state(Counts { requests, published })
}

/// Runs until all routers have been dropped.
async fn publish_each_tick(requests: Arc<AtomicU64>, publish: watch::Sender<u64>) {
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while publish.send(requests.load(Ordering::Relaxed)).is_ok() {
        tick.tick().await;
    }
}

async fn hello(State(counts): State<Counts>, Path(name): Path<String>) -> String {
    counts.requests.fetch_add(1, Ordering::Relaxed);
    format!("hello, {name}\n")
}

async fn count(State(counts): State<Counts>) -> String {
    counts.published.borrow().to_string()
}

/// Computes on tokio's blocking pool.
async fn digest(Path(number): Path<u64>) -> String {
    let digest =
        move || (0..number).fold(0_u64, |sum, each| sum.wrapping_mul(31).wrapping_add(each));
    tokio::task::spawn_blocking(digest)
        .await
        .map_or_else(|error| error.to_string(), |sum| sum.to_string())
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_millis(100)).await;
    "slow\n"
}
