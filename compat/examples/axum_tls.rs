//! An axum program over TLS: HTTP/1 and HTTP/2 on one port, which the client chooses by ALPN. At ctrl-c it accepts no more, and ends
//! once the requests that have begun are answered.
//!
//! `cargo run --manifest-path compat/Cargo.toml --example axum_tls -- 127.0.0.1:8443`, then
//! `curl --insecure https://127.0.0.1:8443/hello/you`. `--cert FILE --key FILE` name a certificate and its key, as PEM; otherwise one is
//! made.

mod certificate;

use annulus::net::TcpListener;
use annulus_compat::rustls::{TlsIncoming, TlsListener};
use axum::extract::Path;
use axum::{Router, routing::get};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let first = arguments.first().filter(|argument| !argument.starts_with("--"));
    let address = first.map_or("127.0.0.1:8443", String::as_str);
    let acceptor =
        certificate::acceptor(option("--cert").zip(option("--key")), &["h2", "http/1.1"])?;
    annulus_tokio::run(async {
        let listener = TlsListener::new(TcpListener::bind(address)?, acceptor)
            .on_failure(|peer, error| eprintln!("{peer}: {error}"));
        println!("listening on https://{}", listener.local_addr()?);
        axum::serve(TlsIncoming::new(listener), router()).with_graceful_shutdown(stop()).await
    })?
}

fn router() -> Router {
    Router::new().route("/hello/{name}", get(hello))
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

async fn stop() {
    _ = tokio::signal::ctrl_c().await;
}
