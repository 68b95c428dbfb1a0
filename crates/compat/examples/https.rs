//! An HTTP/1 and HTTP/2 server over TLS, with hyper and rustls on annulus; the client chooses by
//! ALPN. It allows 10,000 connections at once (more have to wait), ten seconds for a handshake or a
//! request head, and a minute for an idle connection or a client that does not read. On SIGINT or
//! SIGTERM it stops accepting, and exits within ten seconds, once the requests in progress have
//! been answered.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example https -- 127.0.0.1:8443`, then
//! `curl --insecure https://127.0.0.1:8443`. `--cert FILE --key FILE` use a PEM certificate and
//! key; otherwise one is generated. `--plain ADDRESS` also serves both versions without TLS.

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

/// Timeout of a handshake, of a request head, and of the remaining requests at shutdown.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which a connection may be idle, and for which a client may fail to read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// An idle client that vanishes is detected after 25 seconds.
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

/// Serves with limits until `stop` is cancelled.
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
        .header_read_timeout(STEP_TIMEOUT)
        .idle_timeout(IDLE_TIMEOUT)
        .write_timeout(IDLE_TIMEOUT)
        // An error ends its connection. Most errors are caused by the peer.
        .on_error(|error| eprintln!("{error}"))
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .drain_timeout(STEP_TIMEOUT);
    match acceptor {
        Some(acceptor) => server.tls(acceptor).await,
        None => server.await,
    }
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("hello over {:?}\n", request.version());
    Ok(Response::new(Full::new(Bytes::from(text))))
}
