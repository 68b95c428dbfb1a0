//! A server of HTTP/1 and HTTP/2 over TLS, by hyper and rustls on annulus; the client chooses by ALPN. Limits: 10,000 connections, others wait;
//! ten seconds for a handshake and the head of a request, a minute without a request and for a client that does not read. On SIGINT or SIGTERM
//! it accepts no more, and ends once the requests that have begun are answered, within ten seconds.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example https -- 127.0.0.1:8443`, then `curl --insecure https://127.0.0.1:8443`.
//! `--cert FILE --key FILE` name a certificate and its key, as PEM; otherwise one is made. `--plain ADDRESS` serves both versions
//! without TLS as well.

mod arguments;
mod certificate;

use annulus::net::{KeepAlive, ListenOptions};
use annulus::signal::{Signal, signals};
use annulus_compat::rustls::TlsAcceptor;
use annulus_compat::tower::serve_hyper;
use arguments::Arguments;
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use std::convert::Infallible;
use std::io;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a handshake, the head of a request, and the last requests may take once the server ends.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may have no request, and how long a client may not read.
const IDLE: Duration = Duration::from_secs(60);

/// A client that has vanished is noticed after 25 seconds without a byte.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> io::Result<()> {
    let Arguments { address, files, plain } = Arguments::of_process(true);
    let acceptor = certificate::acceptor(files, &["h2", "http/1.1"])?;
    annulus::run(async {
        let stop = CancellationToken::new();
        annulus::spawn(stop_on_signal(stop.clone()));
        let plain = async {
            match plain {
                Some(address) => serve(&address, None, &stop).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(serve(&address, Some(acceptor), &stop), plain)?;
        Ok(())
    })
}

async fn stop_on_signal(stop: CancellationToken) -> io::Result<()> {
    signals(&[Signal::SIGINT, Signal::SIGTERM])?.recv().await?;
    stop.cancel();
    Ok(())
}

/// Serves until the stop, with limits.
async fn serve(
    address: &str,
    acceptor: Option<TlsAcceptor>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    let server = serve_hyper(listener, service_fn(hello))
        .max_connections(10_000)
        .header_read_timeout(LIMIT)
        .idle_timeout(IDLE)
        .write_timeout(IDLE)
        // It ends the connection, and is the peer's in most cases.
        .on_error(|error| eprintln!("{error}"))
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .drain_timeout(LIMIT);
    match acceptor {
        Some(acceptor) => server.tls(acceptor).await,
        None => server.await,
    }
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("hello over {:?}\n", request.version());
    Ok(Response::new(Full::new(Bytes::from(text))))
}
