//! An axum program on annulus sockets. Only `main` and the listener differ from a program on tokio
//! alone.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example axum -- 127.0.0.1:8080`, then
//! `curl 127.0.0.1:8080/hello/you`. `axum::serve` limits neither the number of clients nor their
//! time; `tower::serve`, on annulus alone, has settings for both. On ctrl-c or SIGTERM it exits
//! once the requests in progress have been answered.

use annulus::net::{KeepAlive, ListenOptions};
use annulus_compat::Incoming;
use axum::extract::Path;
use axum::{Router, routing::get};
use std::time::Duration;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

/// An idle client that vanishes is detected after 25 seconds.
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

/// Waits for ctrl-c or SIGTERM.
async fn stop() {
    let mut end = signal(SignalKind::terminate()).expect("cannot catch signals");
    tokio::select! {
        _ = ctrl_c() => {}
        _ = end.recv() => {}
    }
}
