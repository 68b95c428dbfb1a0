//! The server of these tests.

use crate::{HEADER_TIMEOUT, IDLE_TIMEOUT, RELEASE_DELAY, SECOND};
use annulus::net::TcpListener;
use annulus::task::JoinHandle;
use annulus::time::sleep;
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
use std::rc::Rc;
use tokio_util::sync::CancellationToken;

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) ended: JoinHandle<io::Result<()>>,
    pub(crate) errors: Rc<RefCell<Vec<String>>>,
}

/// Starts a server that runs until `stop` is cancelled.
pub(crate) fn start(address: &str) -> Running {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, errors) = (CancellationToken::new(), Rc::new(RefCell::new(Vec::new())));
    let reported = errors.clone();
    let server = serve_hyper(listener, service_fn(answer))
        .release_after(RELEASE_DELAY)
        .header_read_timeout(HEADER_TIMEOUT)
        .idle_timeout(IDLE_TIMEOUT)
        .on_error(move |error| reported.borrow_mut().push(error.error.to_string()))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    Running { address, stop, ended: annulus::spawn(server.into_future()), errors }
}

/// Responds to `/slow` after ten seconds, upgrades `/upgrade` to an echo, responds to `/N` with a
/// body of N bytes, and echoes POST bodies.
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
        // Copies until the client disconnects.
        _ = tokio::io::copy(&mut receiver, &mut sender).await;
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "echo".parse().unwrap());
    response
}
