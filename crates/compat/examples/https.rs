//! A server of HTTP/1 and HTTP/2 over TLS, by hyper and rustls on annulus; the client chooses by ALPN. On SIGINT or SIGTERM it accepts no
//! more, and ends once the requests that have begun are answered.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example https -- 127.0.0.1:8443`, then `curl --insecure https://127.0.0.1:8443`.
//! `--cert FILE --key FILE` name a certificate and its key, as PEM; otherwise one is made. `--plain ADDRESS` serves both versions
//! without TLS as well.

mod arguments;
mod certificate;

use annulus::io::AsyncStream;
use annulus::net::{TcpListener, TcpStream};
use annulus::signal::{Signal, signals};
use annulus::sync::CancellationToken;
use annulus::task::JoinSet;
use annulus::time::timeout;
use annulus_compat::hyper::{Executor, Io, Timer};
use annulus_compat::rustls::TlsAcceptor;
use arguments::Arguments;
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

/// How long a client may take to say which version it speaks, and how long requests may take once the server ends.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let Arguments { address, files, plain } = Arguments::of_process(true);
    let acceptor = certificate::acceptor(files, &["h2", "http/1.1"])?;
    annulus::run(async {
        let stop = CancellationToken::new();
        annulus::spawn(stop_on_signal(stop.clone()));
        let plain = async {
            match plain {
                Some(address) => listen(&address, None, &stop).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(listen(&address, Some(acceptor), &stop), plain)?;
        Ok(())
    })
}

async fn stop_on_signal(stop: CancellationToken) -> io::Result<()> {
    signals(&[Signal::SIGINT, Signal::SIGTERM])?.recv().await?;
    stop.cancel();
    Ok(())
}

/// Accepts until the stop, then waits for the connections.
async fn listen(
    address: &str,
    acceptor: Option<TlsAcceptor>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let ((stream, peer), acceptor, stop) = (accepted?, acceptor.clone(), stop.clone());
        connections.spawn(async move {
            let served = match acceptor {
                Some(acceptor) => encrypted(stream, acceptor, stop).await,
                None => plain(stream, stop).await,
            };
            // It ends the connection, and is the peer's in most cases.
            served.unwrap_or_else(|error| eprintln!("{peer}: {error}"));
        });
        // What has ended need not be kept.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    _ = timeout(LIMIT, all).await;
    Ok(())
}

async fn encrypted(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error>> {
    let Some(stream) = stop.run_until_cancelled(acceptor.accept(stream)).await else {
        return Ok(());
    };
    let stream = stream?;
    let is_http_2 = stream.alpn_protocol() == Some(b"h2");
    Ok(serve(stream, is_http_2, stop).await?)
}

async fn plain(
    mut stream: TcpStream,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error>> {
    // A client of HTTP/2 that knows that this server speaks it begins with "PRI * HTTP/2.0".
    let first = stop.run_until_cancelled(timeout(LIMIT, stream.peek(3)));
    let Some(shown) = first.await else { return Ok(()) };
    let is_http_2 = shown??.starts_with(b"PRI");
    Ok(serve(stream, is_http_2, stop).await?)
}

async fn serve(
    stream: impl AsyncStream + Unpin + 'static,
    is_http_2: bool,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let stream = Io::new(stream);
    if is_http_2 {
        let mut server = http2::Builder::new(Executor);
        let connection = server.timer(Timer::new()).serve_connection(stream, service_fn(hello));
        until(&stop, connection, |connection| connection.graceful_shutdown()).await
    } else {
        let mut server = http1::Builder::new();
        server.timer(Timer::new()).pipeline_flush(true);
        let connection = server.serve_connection(stream, service_fn(hello));
        until(&stop, connection, |connection| connection.graceful_shutdown()).await
    }
}

/// Serves a connection; after the stop, up to the end of the requests that have begun.
async fn until<C: Future>(
    stop: &CancellationToken,
    connection: C,
    finish: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    match stop.run_until_cancelled(connection.as_mut()).await {
        Some(output) => output,
        None => {
            finish(connection.as_mut());
            connection.await
        }
    }
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("hello over {:?}\n", request.version());
    Ok(Response::new(Full::new(Bytes::from(text))))
}
