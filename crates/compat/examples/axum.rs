//! An axum program on sockets of annulus: what differs from one on tokio alone is `main`, and the listener.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example axum -- 127.0.0.1:8080`, then `curl 127.0.0.1:8080/hello/you`.
//! Limits: those of `axum::serve`, which has none on clients and their time; on annulus alone `tower::serve` has. Ctrl-c and SIGTERM end
//! it once the requests that have begun are answered.

use annulus::net::{KeepAlive, ListenOptions};
use annulus_compat::Incoming;
use axum::extract::Path;
use axum::{Router, routing::get};
use std::time::Duration;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

/// A client that has vanished is noticed after 25 seconds without a byte.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> std::io::Result<()> {
    annulus_tokio::run(async {
        let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(&*address)?;
        let incoming = Incoming::new(listener);
        println!("listening on {}", incoming.local_addr()?);
        axum::serve(incoming, router()).with_graceful_shutdown(stop()).await
    })?
}

fn router() -> Router {
    Router::new().route("/hello/{name}", get(hello))
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

/// Ctrl-c, or a signal to end.
async fn stop() {
    let mut end = signal(SignalKind::terminate()).expect("signals can be caught");
    tokio::select! {
        _ = ctrl_c() => {}
        _ = end.recv() => {}
    }
}
