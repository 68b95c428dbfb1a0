//! An axum program over TLS: HTTP/1 and HTTP/2 on one port, which the client chooses by ALPN. At ctrl-c or SIGTERM it accepts no more, and ends
//! once the requests that have begun are answered. Limits: ten seconds for a handshake, and else those of `axum::serve`, which has none on
//! clients and their time; the example `https` has all.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example axum_tls -- 127.0.0.1:8443`, then
//! `curl --insecure https://127.0.0.1:8443/hello/you`. `--cert FILE --key FILE` name a certificate and its key, as PEM; otherwise one is
//! made.

mod arguments;
mod certificate;

use annulus::net::{KeepAlive, ListenOptions};
use annulus_compat::Incoming;
use annulus_compat::rustls::TlsListener;
use arguments::Arguments;
use axum::extract::Path;
use axum::{Router, routing::get};
use std::time::Duration;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

/// A client that has vanished is noticed after 25 seconds without a byte.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> std::io::Result<()> {
    let Arguments { address, files, .. } = Arguments::of_process(false);
    let acceptor = certificate::acceptor(files, &["h2", "http/1.1"])?;
    annulus_tokio::run(async {
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(&address)?;
        let listener = TlsListener::new(listener, acceptor)
            .on_failure(|peer, error| eprintln!("{peer}: {error}"));
        println!("listening on https://{}", listener.local_addr()?);
        axum::serve(Incoming::new(listener), router()).with_graceful_shutdown(stop()).await
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
