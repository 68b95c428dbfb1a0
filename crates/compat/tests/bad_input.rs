//! Misbehaving peers and hyper services, in virtual time.

use crate::common;

use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::{TcpListener, TcpStream};
use annulus::time::{Instant, sleep};
use annulus_compat::OnThread;
use annulus_compat::tower::{serve_hyper, serve_with};
use bytes::Bytes;
use common::{Outcome, simulated};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use std::cell::Cell;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const GET_REQUEST: &str = "GET /1 HTTP/1.1\r\nhost: x\r\n\r\n";

/// Number of truncated bodies that the server received.
#[derive(Clone, Default)]
struct Seen(Rc<Cell<u32>>);

/// Panics for `/panic`, ignores the body for `/ignore`, delays `/slow`, responds to `/N` with N
/// bytes, and echoes other POST bodies.
async fn answer(
    seen: Seen,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    assert_ne!(path, "/panic", "panics on request");
    if path == "/ignore" {
        return Ok(Response::new(Full::new(Bytes::from("ignored"))));
    }
    if path == "/slow" {
        sleep(SECOND).await;
    }
    let body = request.into_body().collect().await.inspect_err(|_| seen.0.set(seen.0.get() + 1))?;
    let body = body.to_bytes();
    let size = path[1..].parse().unwrap_or(0);
    let body = if body.is_empty() { Bytes::from(vec![b'x'; size]) } else { body };
    Ok(Response::new(Full::new(body)))
}

/// Serves connections. Each one holds a clone of the returned `Rc`.
fn serve(listener: TcpListener, seen: Seen) -> Rc<()> {
    let open = Rc::new(());
    let counted = open.clone();
    let server = serve_with(listener, move |_: &SocketAddr| {
        let (seen, open) = (seen.clone(), counted.clone());
        service_fn(move |request| {
            let _open = &open;
            answer(seen.clone(), request)
        })
    });
    annulus::spawn(
        server.header_read_timeout(HEADER_TIMEOUT).idle_timeout(IDLE_TIMEOUT).into_future(),
    );
    open
}

/// Reads a response with a body of `size` bytes.
async fn response(stream: &mut TcpStream, size: usize) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    loop {
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
        if head.is_some_and(|head| answer.len() == head + 4 + size) {
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
            return Ok(answer.split_off(answer.len() - size));
        }
        let lease = stream.recv().await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        answer.extend_from_slice(&lease);
    }
}

/// Reads the rest of a stream, and returns how long it took to end.
async fn end(stream: &mut TcpStream) -> Duration {
    let start = Instant::now();
    while let Ok(Some(_)) = stream.recv().await {}
    start.elapsed()
}

fn on_simulation<F: Future<Output = Outcome>>(body: impl FnOnce(Seen) -> F) {
    simulated(|_| async {
        let seen = Seen::default();
        let open = serve(TcpListener::bind("10.0.0.1:80")?, seen.clone());
        body(seen).await?;
        // The server still works, whatever happened to its connections.
        let mut stream = TcpStream::connect("10.0.0.1:80").await?;
        stream.send(GET_REQUEST).await?;
        assert_eq!(response(&mut stream, 1).await?, b"x");
        drop(stream);
        sleep(IDLE_TIMEOUT + 2 * SECOND).await;
        assert_eq!(Rc::strong_count(&open), 2, "a connection outlived its limits");
        Ok(())
    });
}

#[test]
fn truncated_body_is_an_error_in_its_handler() {
    on_simulation(async |seen| {
        for ends in [false, true] {
            let mut stream = TcpStream::connect("10.0.0.1:80").await?;
            stream.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await?;
            stream.drain().await?;
            if ends {
                stream.shutdown().await?;
                end(&mut stream).await;
            }
            drop(stream);
            sleep(SECOND).await;
        }
        assert_eq!(seen.0.get(), 2);
        Ok(())
    });
}

/// The handler does not read the body. The rest of the body arrives after the response and looks
/// like a request.
#[test]
fn rest_of_an_ignored_body_is_not_parsed_as_a_request() {
    on_simulation(async |seen| {
        let mut stream = TcpStream::connect("10.0.0.1:80").await?;
        let rest = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
        let head =
            format!("POST /ignore HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", rest.len());
        stream.send(head).await?;
        assert_eq!(response(&mut stream, 7).await?, b"ignored");
        sleep(SECOND).await;
        _ = stream.send(rest).await;
        end(&mut stream).await;
        assert_eq!(seen.0.get(), 0, "the rest was parsed as a request");
        Ok(())
    });
}

#[test]
fn connection_with_a_request_in_progress_is_not_idle() {
    on_simulation(async |_| {
        let mut stream = TcpStream::connect("10.0.0.1:80").await?;
        for _ in 0..3 {
            stream.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            response(&mut stream, 0).await?;
        }
        Ok(())
    });
}

#[test]
fn a_panic_ends_its_connection() {
    on_simulation(async |_| {
        let mut stream = TcpStream::connect("10.0.0.1:80").await?;
        stream.send("GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        assert!(end(&mut stream).await < SECOND);
        Ok(())
    });
}

/// A peer that sends one header byte per second, on a connection that is new, used or released.
#[test]
fn a_slow_header_is_cut_off_at_its_limit() {
    on_simulation(async |_| {
        for pause in [None, Some(Duration::ZERO), Some(2 * SECOND)] {
            let mut stream = TcpStream::connect("10.0.0.1:80").await?;
            let mut start = Instant::now();
            if let Some(pause) = pause {
                stream.send(GET_REQUEST).await?;
                response(&mut stream, 1).await?;
                start = Instant::now();
                sleep(pause).await;
            }
            for byte in GET_REQUEST.as_bytes().iter().take(20) {
                _ = stream.send(vec![*byte]).await;
                // The server responds, closes the connection or resets it.
                if annulus::time::timeout(SECOND, stream.recv()).await.is_ok() {
                    break;
                }
            }
            end(&mut stream).await;
            assert!(
                (HEADER_TIMEOUT..HEADER_TIMEOUT + 3 * SECOND).contains(&start.elapsed()),
                "{:?}",
                start.elapsed()
            );
        }
        Ok(())
    });
}

#[test]
fn connection_without_a_request_is_closed_at_the_header_timeout() {
    on_simulation(async |_| {
        let mut silent = TcpStream::connect("10.0.0.1:80").await?;
        let took = end(&mut silent).await;
        assert!((HEADER_TIMEOUT..HEADER_TIMEOUT + SECOND).contains(&took), "{took:?}");
        let mut used = TcpStream::connect("10.0.0.1:80").await?;
        used.send(GET_REQUEST).await?;
        response(&mut used, 1).await?;
        let took = end(&mut used).await;
        assert!((HEADER_TIMEOUT..HEADER_TIMEOUT + SECOND).contains(&took), "{took:?}");
        Ok(())
    });
}

#[test]
fn silent_and_idle_connections_are_closed_by_default() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let answered = service_fn(|request| answer(Seen::default(), request));
        annulus::spawn(serve_hyper(listener, answered).into_future());
        let default = Duration::from_secs(30);
        for request in ["", GET_REQUEST] {
            let mut stream = TcpStream::connect("10.0.0.1:80").await?;
            if !request.is_empty() {
                stream.send(request).await?;
                response(&mut stream, 1).await?;
            }
            let took = annulus::time::timeout(2 * default, end(&mut stream)).await?;
            assert!((default..default + SECOND).contains(&took), "{took:?}");
        }
        Ok(())
    });
}

/// A stream moved to another thread returns errors there, and loses nothing on its own thread.
#[test]
fn stream_fails_on_another_thread_and_still_works_on_its_own() {
    annulus::run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let moved = OnThread::new(stream);
        let away = std::thread::spawn(move || {
            let mut moved = moved;
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(Err(read)) = moved.poll_fill_buf(&mut cx) else {
                panic!("the read did not fail")
            };
            let Poll::Ready(Err(write)) = moved.poll_write(&mut cx, b"lost?") else {
                panic!("the write did not fail")
            };
            (moved, [read.to_string(), write.to_string()])
        });
        let (mut moved, errors) = away.join().unwrap();
        for error in errors {
            assert!(error.starts_with("used on a thread other than"), "{error}");
        }
        let stream = moved.try_mut().expect("used on another thread");
        stream.send("here").await.unwrap();
        assert_eq!(&*peer.recv_exact(4).await.unwrap(), b"here");
    });
}
