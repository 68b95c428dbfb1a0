//! Unpatched hyper 1: HTTP/1 and HTTP/2 servers and clients, on io_uring, on epoll, as a guest of
//! tokio and on a simulated kernel.

use crate::common;

use annulus::Runtime;
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::Sim;
use annulus::time::sleep;
use annulus_compat::hyper::{Executor, Io, Timer};
use bytes::Bytes;
use common::{Failure, Outcome, everywhere, on_networks, simulated};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::Timer as _;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::net::SocketAddr;
use std::task::{Context, Waker};
use std::time::Duration;

const LARGE_BODY_BYTES: usize = 3_000_000;

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// Echoes the body of `POST /echo`, answers `GET /large` with a large body, and everything else
/// with 404.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let body = match (&method, path.as_str()) {
        (&Method::POST, "/echo") => request.into_body().collect().await?.to_bytes(),
        (&Method::GET, "/large") => Bytes::from(vec![b'x'; LARGE_BODY_BYTES]),
        _ => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    Ok(Response::new(Full::new(body)))
}

fn serve(version: Version, listener: TcpListener) {
    annulus::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = Io::new(stream);
            annulus::spawn(async move {
                match version {
                    Version::One => {
                        let mut builder = hyper::server::conn::http1::Builder::new();
                        builder.timer(Timer::new()).header_read_timeout(Duration::from_secs(5));
                        _ = builder.serve_connection(stream, service_fn(answer)).await;
                    }
                    Version::Two => {
                        let mut builder = hyper::server::conn::http2::Builder::new(Executor);
                        builder.timer(Timer::new());
                        _ = builder.serve_connection(stream, service_fn(answer)).await;
                    }
                }
            });
        }
    });
}

enum Client {
    One(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Client {
    async fn connect(version: Version, address: SocketAddr) -> Result<Self, Failure> {
        let stream = Io::new(TcpStream::connect(address).await?);
        Ok(match version {
            Version::One => {
                let (client, connection) = hyper::client::conn::http1::handshake(stream).await?;
                annulus::spawn(connection);
                Self::One(client)
            }
            Version::Two => {
                let (client, connection) =
                    hyper::client::conn::http2::handshake(Executor, stream).await?;
                annulus::spawn(connection);
                Self::Two(client)
            }
        })
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: &[u8],
    ) -> Result<(u16, Bytes), Failure> {
        let uri = format!("http://localhost{path}");
        let request = Request::builder().method(method).uri(uri).header("host", "localhost");
        let request = request.body(Full::new(Bytes::copy_from_slice(body)))?;
        let response = match self {
            Self::One(client) => client.send_request(request).await?,
            Self::Two(client) => client.send_request(request).await?,
        };
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

async fn converse(version: Version, address: &str) -> Outcome {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    serve(version, listener);
    let mut client = Client::connect(version, address).await?;
    for round in 0..20_u8 {
        let body = vec![round; 1000 * usize::from(round)];
        let (status, echoed) = client.ask(Method::POST, "/echo", &body).await?;
        assert_eq!((status, echoed), (200, Bytes::from(body)));
    }
    let (status, large) = client.ask(Method::GET, "/large", &[]).await?;
    assert_eq!((status, large.len()), (200, LARGE_BODY_BYTES));
    assert_eq!(client.ask(Method::GET, "/nothing", &[]).await?.0, 404);
    Ok(())
}

#[test]
fn http_1() {
    everywhere(|| converse(Version::One, "127.0.0.1:0"));
}

#[test]
fn http_2() {
    everywhere(|| converse(Version::Two, "127.0.0.1:0"));
}

/// There are no faults, so the conversation must succeed.
#[test]
fn both_versions_on_simulated_networks() {
    for version in [Version::One, Version::Two] {
        on_networks(|| converse(version, "10.0.0.1:80"));
    }
}

/// hyper's header timeout follows virtual time.
#[test]
fn peer_that_never_finishes_its_head_is_cut_off() {
    let sim = Sim::builder(1).build();
    let ran = annulus::sim::run_on(&sim, Runtime::builder(), async {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        serve(Version::One, listener);
        let mut slow = TcpStream::connect("10.0.0.1:80").await?;
        let start = annulus::time::Instant::now();
        for byte in b"GET / HTTP/1.1\r\nhost: lo" {
            if slow.send(vec![*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        // The server responds with 408 or closes.
        while let Ok(Some(_)) = slow.recv().await {}
        std::io::Result::Ok(start.elapsed())
    });
    let took = ran.unwrap();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn panicking_handler_ends_only_its_connection() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let handler = service_fn(async |request: Request<Incoming>| {
                    assert_ne!(request.uri().path(), "/panic", "panics on request");
                    Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from("fine"))))
                });
                let builder = hyper::server::conn::http1::Builder::new();
                annulus::spawn(builder.serve_connection(Io::new(stream), handler));
            }
        });
        let mut one = Client::connect(Version::One, address).await?;
        assert!(one.ask(Method::GET, "/panic", &[]).await.is_err());
        let mut other = Client::connect(Version::One, address).await?;
        assert_eq!(other.ask(Method::GET, "/", &[]).await?.1, "fine");
        Ok(())
    });
}

/// The handler answers at once, and hyper's `half_close` is off.
#[test]
fn half_closed_client_gets_its_response() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        serve(Version::One, listener);
        for _ in 0..20 {
            let mut client = TcpStream::connect(address).await?;
            client.send("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            client.shutdown().await?;
            let status = client.recv().await?.expect("no answer arrived");
            assert!(status.starts_with(b"HTTP/1.1 404"), "{status:?}");
        }
        Ok(())
    });
}

#[test]
fn a_connection_dropped_in_the_middle_of_a_body_is_an_error() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let mut client = TcpStream::connect(address).await?;
        client.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await?;
        client.shutdown().await?;
        let (stream, _) = listener.accept().await?;
        let builder = hyper::server::conn::http1::Builder::new();
        let served = builder.serve_connection(Io::new(stream), service_fn(answer)).await;
        assert!(served.is_err());
        Ok(())
    });
}

/// hyper resets its timer for each request: that must not allocate, and the last deadline must
/// apply.
#[test]
fn reset_timer_is_not_reallocated() {
    simulated(async |_| {
        let timers = Timer::new();
        let second = Duration::from_secs(1);
        for (polled, times) in [(false, [5, 9]), (true, [5, 9]), (true, [9, 5]), (true, [5, 5])] {
            let start = timers.now();
            let [first, last] = times.map(|seconds| start + seconds * second);
            let mut timer = timers.sleep_until(first);
            if polled {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(timer.as_mut().poll(&mut cx).is_pending());
            }
            let before = std::ptr::from_ref(&*timer).cast::<()>();
            timers.reset(&mut timer, last);
            assert_eq!(
                std::ptr::from_ref(&*timer).cast::<()>(),
                before,
                "the timer was reallocated"
            );
            timer.await;
            let took = timers.now() - start;
            assert!(took >= last - start && took < last - start + second / 10, "{took:?}");
        }
        Ok(())
    });
}
