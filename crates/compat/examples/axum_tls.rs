//! An axum program over TLS, with HTTP/1 and HTTP/2 on one port; the client chooses by ALPN. On
//! ctrl-c or SIGTERM it stops accepting, and exits once the requests in progress have been
//! answered. A handshake may take ten seconds. `axum::serve` has no other limits on the number of
//! clients or their time; the example `https` has them.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example axum_tls -- 127.0.0.1:8443`, then
//! `curl --insecure https://127.0.0.1:8443/hello/you`. `--cert FILE --key FILE` use a PEM
//! certificate and key; otherwise one is generated.

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

/// An idle client that vanishes is detected after 25 seconds.
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

/// Waits for ctrl-c or SIGTERM.
async fn stop() {
    let mut end = signal(SignalKind::terminate()).expect("cannot catch signals");
    tokio::select! {
        _ = ctrl_c() => {}
        _ = end.recv() => {}
    }
}
