//! Arguments, services, answers and hyper's settings, shared by the hyper servers on all runtimes.

use std::error::Error;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::Collect;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;

pub use listen::{BACKLOG, SHORTAGE, must, ring as on_ring};
pub use rustls::ServerConfig;

const USAGE: i32 = 2;
const UNAVAILABLE: i32 = 3;

/// The length of the answer to `/16k`.
const LARGE: usize = 16 * 1024;
static LARGE_BODY: [u8; LARGE] = [b'x'; LARGE];

/// The protocol of a server.
#[derive(Clone)]
pub struct Service {
    version: Version,
    /// The TLS settings, if connections are encrypted.
    pub tls: Option<Arc<ServerConfig>>,
}

#[derive(Clone, Copy)]
enum Version {
    Http1,
    /// HTTP/2, by prior knowledge or by ALPN.
    Http2,
}

/// The arguments of a server: `PROGRAM PORT SERVICE [MODE]`.
pub struct Task {
    pub address: SocketAddr,
    pub service: Service,
    pub mode: Option<String>,
}

/// Parses the arguments of a program with these modes and without TLS.
pub fn task(modes: &[&str]) -> Task {
    let task = any_task(modes);
    if task.service.tls.is_some() {
        unavailable("this server does not support TLS");
    }
    task
}

/// Parses the arguments of a program with these modes and TLS.
pub fn any_task(modes: &[&str]) -> Task {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (port, service, mode) = match arguments.as_slice() {
        [port, service] => (port, service, None),
        [port, service, mode] if modes.contains(&mode.as_str()) => {
            (port, service, Some(mode.clone()))
        }
        [_, _, mode] => {
            usage(format_args!("unknown mode '{mode}'; known modes: {}", modes.join(", ")))
        }
        _ => usage("usage: PROGRAM PORT http1|http2|https1|https2 [MODE]"),
    };
    let Ok(port) = port.parse() else { usage(format_args!("'{port}' is not a valid port")) };
    let (version, alpn) = match service.as_str() {
        "http1" => (Version::Http1, None),
        "http2" => (Version::Http2, None),
        "https1" => (Version::Http1, Some("http/1.1")),
        "https2" => (Version::Http2, Some("h2")),
        other => usage(format_args!(
            "unknown service '{other}'; known services: http1, http2, https1, https2"
        )),
    };
    let service = Service { version, tls: alpn.map(|alpn| Arc::new(must(config(alpn)))) };
    Task { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), service, mode }
}

/// Sets up TLS with a self-signed certificate, which is created here.
fn config(alpn: &str) -> Result<ServerConfig, Box<dyn Error>> {
    let made =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = builder.with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![alpn.into()];
    Ok(config)
}

/// Announces the address once everything is set up.
pub fn announce(address: SocketAddr) {
    listen::announce(&listen::Address::Tcp(address));
}

/// Serves one connection to its end. An error ends the connection; most errors are the peer's
/// fault.
pub async fn serve<I, E>(service: &Service, stream: I, executor: E)
where
    I: Read + Write + Unpin + 'static,
    E: Http2ServerConnExec<Answer, Full<Bytes>>,
{
    let _ = match service.version {
        Version::Http1 => http1().serve_connection(stream, service_fn(answer)).await,
        Version::Http2 => {
            // Boxed, because this large future would otherwise also enlarge the tasks of HTTP/1
            // connections.
            Box::pin(http2::Builder::new(executor).serve_connection(stream, service_fn(answer)))
                .await
        }
    };
}

/// hyper's settings for HTTP/1.
pub fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.pipeline_flush(true);
    builder
}

/// Answers a request.
pub fn answer(request: Request<Incoming>) -> Answer {
    match request.uri().path() {
        "/" => Answer::of(Bytes::from_static(b"hello\n")),
        "/16k" => Answer::of(Bytes::from_static(&LARGE_BODY)),
        "/read" => Answer::AfterBody(request.into_body().collect()),
        _ => {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            Answer::AtOnce(Some(missing))
        }
    }
}

/// The future of an answer.
pub enum Answer {
    /// An answer that is ready.
    AtOnce(Option<Response<Full<Bytes>>>),
    /// An empty answer, once the body of the request has arrived.
    AfterBody(Collect<Incoming>),
}

impl Answer {
    fn of(body: Bytes) -> Answer {
        Answer::AtOnce(Some(Response::new(Full::new(body))))
    }
}

impl Future for Answer {
    type Output = Result<Response<Full<Bytes>>, hyper::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Answer::AtOnce(answer) => Poll::Ready(Ok(answer.take().expect("polled again"))),
            Answer::AfterBody(body) => {
                Pin::new(body).poll(cx).map_ok(|_| Response::new(Full::default()))
            }
        }
    }
}

fn usage(why: impl Display) -> ! {
    end(USAGE, why)
}

fn unavailable(why: impl Display) -> ! {
    end(UNAVAILABLE, why)
}

fn end(code: i32, why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(code)
}
