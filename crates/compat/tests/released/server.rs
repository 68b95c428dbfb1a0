//! The servers, which do the same.

use crate::{HEADER, IDLE, RELEASE, SECOND};
use annulus::JoinSet;
use annulus::net::{TcpListener, TcpStream};
use annulus::task::JoinHandle;
use annulus::time::sleep;
use annulus_compat::hyper::{Http1, Timer};
use annulus_compat::tower::serve_hyper;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Http1,
    Serve,
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) ended: JoinHandle<io::Result<()>>,
    pub(crate) errors: Rc<RefCell<Vec<String>>>,
}

/// Starts a server, which ends once `stop` is cancelled.
pub(crate) fn start(kind: Kind, address: &str) -> Running {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, errors) = (CancellationToken::new(), Rc::new(RefCell::new(Vec::new())));
    let ended = match kind {
        Kind::Http1 => annulus::spawn(accept(listener, stop.clone(), errors.clone())),
        Kind::Serve => {
            let reported = errors.clone();
            let server = serve_hyper(listener, service_fn(answer))
                .release_after(RELEASE)
                .header_read_timeout(HEADER)
                .idle_timeout(IDLE)
                .on_error(move |error| reported.borrow_mut().push(error.error.to_string()))
                .with_graceful_shutdown(stop.clone().cancelled_owned());
            annulus::spawn(server.into_future())
        }
    };
    Running { address, stop, ended, errors }
}

/// As `tower::serve`, by `Http1`.
async fn accept(
    listener: TcpListener,
    stop: CancellationToken,
    errors: Rc<RefCell<Vec<String>>>,
) -> io::Result<()> {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(Timer::new()).header_read_timeout(HEADER);
    let server = Rc::new(Http1::new(http).release_after(RELEASE).idle_timeout(IDLE));
    let mut connections = JoinSet::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (server, stop, errors) = (server.clone(), stop.clone(), errors.clone());
        let (stream, _) = accepted?;
        connections.spawn(async move {
            if let Err(error) = serve_connection(&server, stream, stop).await {
                errors.borrow_mut().push(error.to_string());
            }
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn serve_connection(
    server: &Http1,
    stream: TcpStream,
    stop: CancellationToken,
) -> Result<(), crate::Failure> {
    let mut connection = pin!(server.serve_connection(stream, service_fn(answer)));
    if let Some(ended) = stop.run_until_cancelled(connection.as_mut()).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Answers `/slow` ten seconds late, `/upgrade` by an upgrade to an echo, `/N` with a body of so many bytes, and a POST with its own.
pub(crate) async fn answer(
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    if path == "/upgrade" {
        return Ok(upgrade(request));
    }
    if path == "/slow" {
        sleep(SECOND * 10).await;
    }
    let size = path[1..].parse().unwrap_or(0);
    let body = request.into_body().collect().await?.to_bytes();
    let body = if body.is_empty() { Bytes::from(vec![b'x'; size]) } else { body };
    Ok(Response::new(Full::new(body)))
}

fn upgrade(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let upgraded = hyper::upgrade::on(&mut request);
    annulus::spawn(async move {
        let (mut receiver, mut sender) = tokio::io::split(TokioIo::new(upgraded.await.unwrap()));
        // Until the client ends.
        _ = tokio::io::copy(&mut receiver, &mut sender).await;
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "echo".parse().unwrap());
    response
}
