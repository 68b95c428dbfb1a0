//! What the hyper servers have in common, whatever they run on: arguments, services, answers, and hyper's settings.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};

pub use listen::{BACKLOG, SHORTAGE, must, ring};

const USAGE: i32 = 2;

/// The length of the answer to `/16k`.
const LARGE: usize = 16 * 1024;
static LARGE_BODY: [u8; LARGE] = [b'x'; LARGE];

/// What a server speaks.
#[derive(Clone, Copy)]
pub enum Service {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    Http2,
}

/// What a server is to do: `PROGRAM PORT SERVICE [MODE]`.
pub struct Task {
    pub address: SocketAddr,
    pub service: Service,
    pub mode: Option<String>,
}

type Answer = Result<Response<Full<Bytes>>, Infallible>;

/// The program's arguments.
pub fn task(modes: &[&str]) -> Task {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (port, service, mode) = match arguments.as_slice() {
        [port, service] => (port, service, None),
        [port, service, mode] if modes.contains(&mode.as_str()) => {
            (port, service, Some(mode.clone()))
        }
        [_, _, mode] => usage(format_args!("no mode '{mode}': {}", modes.join(", "))),
        _ => usage("usage: PROGRAM PORT http1|http2 [MODE]"),
    };
    let Ok(port) = port.parse() else { usage(format_args!("'{port}' is not a port")) };
    let service = match service.as_str() {
        "http1" => Service::Http1,
        "http2" => Service::Http2,
        other => usage(format_args!("no service '{other}': http1, http2")),
    };
    Task { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), service, mode }
}

/// The announcement, printed when everything is set up.
pub fn announce(address: SocketAddr) {
    listen::announce(&listen::Address::Tcp(address));
}

/// Serves one connection to its end. An error ends the connection, and is the peer's in most cases.
pub async fn serve<I, E>(service: Service, stream: I, executor: E)
where
    I: Read + Write + Unpin + 'static,
    E: Http2ServerConnExec<Ready<Answer>, Full<Bytes>>,
{
    let _ = match service {
        Service::Http1 => {
            http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(stream, service_fn(answer))
                .await
        }
        Service::Http2 => {
            http2::Builder::new(executor).serve_connection(stream, service_fn(answer)).await
        }
    };
}

fn answer(request: Request<Incoming>) -> Ready<Answer> {
    let body = match request.uri().path() {
        "/" => Bytes::from_static(b"hello\n"),
        "/16k" => Bytes::from_static(&LARGE_BODY),
        _ => {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return ready(Ok(missing));
        }
    };
    ready(Ok(Response::new(Full::new(body))))
}

fn usage(why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(USAGE)
}
