//! The example `https` on tokio alone, to compare with: the same arguments, the same answers, on one thread.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example https_tokio -- 127.0.0.1:8443`

mod arguments;
mod certificate;

use arguments::Arguments;
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long a client may take to say which version it speaks, and how long requests may take once the server ends.
const LIMIT: Duration = Duration::from_secs(10);

/// True once the server ends.
type Stop = watch::Receiver<bool>;

fn main() -> io::Result<()> {
    let Arguments { address, files, plain } = Arguments::of_process(true);
    let acceptor = certificate::acceptor(files, &["h2", "http/1.1"])?;
    let acceptor = TlsAcceptor::from(acceptor.config().clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (stops, stop) = watch::channel(false);
        tokio::spawn(stop_on_signal(stops));
        let plain = async {
            match plain {
                Some(address) => listen(&address, None, stop.clone()).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(listen(&address, Some(acceptor), stop.clone()), plain)?;
        Ok(())
    })
}

async fn stop_on_signal(stop: watch::Sender<bool>) -> io::Result<()> {
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
    _ = stop.send(true);
    Ok(())
}

async fn stopped(stop: &mut Stop) {
    _ = stop.wait_for(|stop| *stop).await;
}

/// Accepts until the stop, then waits for the connections.
async fn listen(address: &str, acceptor: Option<TlsAcceptor>, mut stop: Stop) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            _ = stopped(&mut stop) => break,
            accepted = listener.accept() => accepted?,
        };
        stream.set_nodelay(true)?;
        let (acceptor, stop) = (acceptor.clone(), stop.clone());
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

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn encrypted(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    mut stop: Stop,
) -> Result<(), Failure> {
    let stream = tokio::select! {
        _ = stopped(&mut stop) => return Ok(()),
        accepted = timeout(LIMIT, acceptor.accept(stream)) => accepted??,
    };
    let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(serve(stream, is_http_2, stop).await?)
}

async fn plain(stream: TcpStream, mut stop: Stop) -> Result<(), Failure> {
    // A client of HTTP/2 that knows that this server speaks it begins with "PRI * HTTP/2.0".
    let mut first = [0; 3];
    let first = async {
        while matches!(stream.peek(&mut first).await?, 1 | 2) {
            tokio::task::yield_now().await;
        }
        io::Result::Ok(first)
    };
    let first = tokio::select! {
        _ = stopped(&mut stop) => return Ok(()),
        first = timeout(LIMIT, first) => first??,
    };
    Ok(serve(stream, first == *b"PRI", stop).await?)
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http_2: bool,
    stop: Stop,
) -> hyper::Result<()> {
    let stream = TokioIo::new(stream);
    if is_http_2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        let connection =
            server.timer(TokioTimer::new()).serve_connection(stream, service_fn(hello));
        until(stop, connection, |connection| connection.graceful_shutdown()).await
    } else {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).pipeline_flush(true);
        let connection = server.serve_connection(stream, service_fn(hello));
        until(stop, connection, |connection| connection.graceful_shutdown()).await
    }
}

/// Serves a connection; after the stop, up to the end of the requests that have begun.
async fn until<C: Future>(
    mut stop: Stop,
    connection: C,
    finish: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = stopped(&mut stop) => {}
        output = connection.as_mut() => return output,
    }
    finish(connection.as_mut());
    connection.await
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("hello over {:?}\n", request.version());
    Ok(Response::new(Full::new(Bytes::from(text))))
}
