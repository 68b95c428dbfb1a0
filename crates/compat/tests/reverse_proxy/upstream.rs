//! The upstream to which the proxy forwards requests.

use crate::reverse_proxy::Count;
use annulus::net::{TcpListener, TcpStream};
use annulus_compat::OnThread;
use annulus_compat::tower::serve_with;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{handshake::derive_accept_key, protocol::Role};

type Answer = Result<Response<UnsyncBoxBody<Bytes, hyper::Error>>, io::Error>;

#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Count,
    /// Bytes that an endless body has produced.
    pub(crate) made: Count,
    /// Notified when a request begins to wait.
    pub(crate) waits: Rc<Notify>,
    pub(crate) go_on: Rc<Notify>,
    /// Notified when a waiting request is dropped.
    pub(crate) dropped: Rc<Notify>,
}

pub(crate) fn start(address: &str) -> Upstream {
    let listener = TcpListener::bind(address).unwrap();
    let upstream = Upstream {
        address: listener.local_addr().unwrap(),
        connections: Count::default(),
        made: Count::default(),
        waits: Rc::default(),
        go_on: Rc::default(),
        dropped: Rc::default(),
    };
    let made = upstream.clone();
    let server = serve_with(listener, move |_: &SocketAddr| {
        upstream.connections.update(|count| count + 1);
        let upstream = upstream.clone();
        service_fn(move |request| upstream.clone().answer(request))
    });
    // A proxy that shuts down its sending direction no longer needs the response.
    let server = server.configure_http1(|http| http.half_close(false));
    annulus::spawn(server.into_future());
    made
}

fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, hyper::Error> {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

struct Dropped(Rc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Upstream {
    async fn answer(self, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/headers" => Ok(headers(&request)),
            "/echo" => Ok(Response::new(request.into_body().boxed_unsync())),
            "/collect" => {
                let body = request.into_body().collect().await.map_err(io::Error::other)?;
                Ok(Response::new(full(body.to_bytes())))
            }
            "/ws" => Ok(websocket(request)),
            "/endless" => Ok(self.endless()),
            "/wait" => {
                let _dropped = Dropped(self.dropped.clone());
                self.waits.notify_one();
                self.go_on.notified().await;
                Ok(Response::new(full("waited")))
            }
            // The service's error ends the connection.
            "/break" => Err(io::Error::other("fails on request")),
            "/half" => Ok(half()),
            "/stall" => Ok(stall()),
            "/upgrade" => Ok(status(StatusCode::SWITCHING_PROTOCOLS)),
            _ => Ok(status(StatusCode::NOT_FOUND)),
        }
    }

    fn endless(self) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
        let pieces = stream::repeat_with(move || {
            self.made.update(|made| made + 10_000);
            Ok(Frame::data(Bytes::from(vec![b'x'; 10_000])))
        });
        // The body must be `Send`, which the counter is not.
        let pieces = OnThread::new(pieces);
        Response::new(StreamBody::new(pieces).boxed_unsync())
    }
}

fn status(status: StatusCode) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let mut response = Response::new(full(""));
    *response.status_mut() = status;
    response
}

/// Lists the received headers.
fn headers(request: &Request<Incoming>) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let mut text = format!("{}\n", request.uri());
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    let response = Response::builder().header("x-upstream", "yes");
    let response = response.header("connection", "x-secret").header("x-secret", "hop");
    response.body(full(text)).unwrap()
}

/// A body that panics after its first part has been sent.
fn half() -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"half")))]);
    let pieces = first.chain(stream::once(async {
        annulus::time::sleep(Duration::from_millis(1)).await;
        panic!("panics on request")
    }));
    Response::builder()
        .header("content-length", "100")
        .body(StreamBody::new(OnThread::new(pieces)).boxed_unsync())
        .unwrap()
}

/// A body that stalls after its first part.
fn stall() -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
    Response::new(StreamBody::new(first.chain(stream::pending())).boxed_unsync())
}

fn websocket(mut request: Request<Incoming>) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let accept = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    annulus::spawn(async move {
        let stream = TokioIo::new(upgrade.await?);
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(message) = socket.next().await.transpose()? {
            if !message.is_close() {
                socket.send(message).await?;
            }
        }
        Ok::<_, crate::reverse_proxy::common::Failure>(())
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept)
        .body(full(""))
        .unwrap()
}

/// Starts an upstream that calls a function with each connection and its number.
pub(crate) fn raw<F>(address: &str, answer: impl Fn(TcpStream, usize) -> F + 'static) -> SocketAddr
where
    F: Future<Output = io::Result<()>> + 'static,
{
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    annulus::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await?;
            annulus::spawn(answer(stream, number));
        }
        io::Result::Ok(())
    });
    address
}
