//! An existing axum program converted to guest mode: it uses annulus sockets, and everything else
//! stays the same. Only `main` has changed, not `app.rs`:
//!
//! ```diff
//! -#[tokio::main]
//! -async fn main() -> io::Result<()> {
//! -    let listener = tokio::net::TcpListener::bind(address()).await?;
//! -    println!("listening on {}", listener.local_addr()?);
//! -    app::serve(listener, stop()).await
//! -}
//! +fn main() -> io::Result<()> {
//! +    annulus_tokio::run(async {
//! +        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address())?;
//! +        println!("listening on {}", listener.local_addr()?);
//! +        app::serve(Incoming::new(listener), stop()).await
//! +    })?
//! +}
//! ```
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example axum_guest -- 127.0.0.1:8080`,
//! then `curl 127.0.0.1:8080/hello/you`. Limits and the shutdown on ctrl-c and SIGTERM are still
//! those of `axum::serve`.

mod app;

use annulus::net::{KeepAlive, ListenOptions};
use annulus_compat::Incoming;
use std::io;
use std::time::Duration;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> io::Result<()> {
    annulus_tokio::run(async {
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address())?;
        println!("listening on {}", listener.local_addr()?);
        app::serve(Incoming::new(listener), stop()).await
    })?
}

fn address() -> String {
    std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into())
}

/// Waits for ctrl-c or SIGTERM.
async fn stop() {
    let mut end = signal(SignalKind::terminate()).expect("cannot catch signals");
    tokio::select! {
        _ = ctrl_c() => {}
        _ = end.recv() => {}
    }
}
