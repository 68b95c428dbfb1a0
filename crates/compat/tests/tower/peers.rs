//! Peers that do not read, send or disconnect, and services that panic.

use crate::tower::*;
use limits::{about, within};

/// The HTTP/2 preface, and empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Connects an HTTP/2 client that grants each response a window of `bytes`.
async fn with_window(
    address: SocketAddr,
    bytes: u32,
) -> Result<http2::SendRequest<Full<Bytes>>, common::Failure> {
    let stream = Io::new(TcpStream::connect(address).await?);
    let mut http = http2::Builder::new(Executor);
    let (client, connection) =
        http.timer(Timer::new()).initial_stream_window_size(bytes).handshake(stream).await?;
    annulus::spawn(connection);
    Ok(client)
}

#[test]
fn http_2_peer_that_grants_no_window_is_dropped() {
    for (path, is_stopped) in [("/endless", false), ("/endless", true), ("/", false), ("/", true)] {
        simulated(async |_| {
            let server =
                start("10.0.0.1:80", |server| server.write_timeout(SECOND * 10).idle_timeout(None));
            let mut client = with_window(server.address, 0).await?;
            let response = client.send_request(to(path, b"")).await?;
            let begun = Instant::now();
            if is_stopped {
                server.stop.cancel();
            }
            assert!(within(SECOND * 60, text(response)).await.is_err());
            assert!(begun.elapsed() >= SECOND * 10, "{:?}", begun.elapsed());
            assert!(begun.elapsed() <= SECOND * 31, "{:?}", begun.elapsed());
            server.stop.cancel();
            within(SECOND * 10, server.ended).await??;
            let errors = server.errors.borrow().join("; ");
            assert!(errors.contains("did not read the response within 10s"), "{errors}");
            Ok(())
        });
    }
}

/// A slowly produced response waits for its service, not for its peer.
#[test]
fn slowly_produced_response_is_not_cut_off() {
    simulated(async |_| {
        let slow = service_fn(async |_| {
            let frames = futures_util::stream::unfold(0, async |n| {
                sleep(SECOND * 20).await;
                (n < 5).then(|| (io::Result::Ok(hyper::body::Frame::data(Bytes::from("x"))), n + 1))
            });
            Ok::<_, Infallible>(hyper::Response::new(http_body_util::StreamBody::new(frames)))
        });
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let address = listener.local_addr()?;
        let server = serve_hyper(listener, slow).write_timeout(SECOND).idle_timeout(SECOND);
        annulus::spawn(server.into_future());
        let (mut one, mut two) = (client_1(address).await?, client_2(address).await?);
        assert_eq!(text(two.send_request(to("/", b"")).await?).await?, "xxxxx");
        assert!(
            one.send_request(to("/", b"")).await.is_err(),
            "the idle connection was not closed"
        );
        one = client_1(address).await?;
        assert_eq!(text(one.send_request(to("/", b"")).await?).await?, "xxxxx");
        Ok(())
    });
}

/// hyper has the whole response, and holds it until the peer grants windows.
#[test]
fn slow_http_2_reader_gets_the_whole_response() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| {
            server.write_timeout(SECOND * 10).idle_timeout(SECOND * 10)
        });
        let mut client = with_window(server.address, 65_535).await?;
        let body = vec![b'x'; 1_000_000];
        let mut response = client.send_request(to("/echo", &body)).await?.into_body();
        let (begun, mut received) = (Instant::now(), 0);
        server.stop.cancel();
        while let Some(frame) = response.frame().await {
            received += frame?.into_data().map_or(0, |data| data.len());
            sleep(SECOND).await;
        }
        assert_eq!(received, body.len());
        assert!(begun.elapsed() > SECOND * 40, "{:?}", begun.elapsed());
        within(SECOND * 10, server.ended).await??;
        Ok(())
    });
}

#[test]
fn idle_http_2_peer_is_dropped_at_shutdown() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.idle_timeout(None));
        let mut silent = TcpStream::connect(server.address).await?;
        silent.send(HTTP2_PREFACE).await?;
        sleep(SECOND * 100).await;
        assert!(server.errors.borrow().is_empty(), "a complete preface timed out");
        let begun = Instant::now();
        server.stop.cancel();
        within(SECOND * 30, server.ended).await??;
        assert!(about(5, begun.elapsed()), "{:?}", begun.elapsed());
        let errors = server.errors.borrow().join("; ");
        assert!(errors.contains("did not close the connection"), "{errors}");
        Ok(())
    });
}

#[test]
fn header_timeout_applies_to_the_first_request_without_an_idle_timeout() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| {
            server.header_read_timeout(SECOND * 20).idle_timeout(None)
        });
        for begin in [&b""[..], b"GET /", b"PRI * HTTP/2.0\r\n"] {
            let mut silent = TcpStream::connect(server.address).await?;
            let begun = Instant::now();
            if !begin.is_empty() {
                silent.send(begin.to_vec()).await?;
            }
            within(SECOND * 60, rest(&mut silent)).await;
            assert!(about(20, begun.elapsed()), "{begin:?}: {:?}", begun.elapsed());
        }
        let errors = server.errors.borrow().join("; ");
        assert!(errors.contains("no request arrived within 20s"), "{errors}");
        Ok(())
    });
}

/// A panic before the response is answered with 500 in HTTP/1. Any other panic ends the connection
/// or stream.
#[test]
fn handler_panic_is_reported_and_the_server_keeps_running() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let (mut one, mut two) = (client_1(server.address).await?, client_2(server.address).await?);
        assert_eq!(one.send_request(to("/panic", b"")).await?.status(), 500);
        assert!(two.send_request(to("/panic", b"")).await.is_err());
        one = client_1(server.address).await?;
        // The reset may overtake the head.
        let broken = async { text(one.send_request(to("/panic-body", b"")).await?).await };
        assert!(broken.await.is_err());
        let broken = async { text(two.send_request(to("/panic-body", b"")).await?).await };
        assert!(broken.await.is_err());
        assert_eq!(text(two.send_request(to("/", b"")).await?).await?, "hello");
        one = client_1(server.address).await?;
        assert_eq!(text(one.send_request(to("/", b"")).await?).await?, "hello");
        server.stop.cancel();
        server.ended.await??;
        let errors = server.errors.borrow();
        assert_eq!(errors.len(), 4, "{errors:?}");
        let is_expected = |error: &String| {
            error.contains("the service panicked: ") && error.contains("panics on request")
        };
        assert!(errors.iter().all(is_expected), "{errors:?}");
        Ok(())
    });
}

/// Tests services that panic before they return a future, and services that return errors.
#[test]
fn service_panics_and_errors_are_reported_in_both_versions() {
    everywhere(async || {
        let fails = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            assert!(request.uri().path() != "/panic", "at once");
            let body = futures_util::stream::iter([Err::<hyper::body::Frame<Bytes>, _>(
                io::Error::other("the body failed on purpose"),
            )]);
            let of_service = Err(io::Error::other("the service failed on purpose"));
            let is_body = request.uri().path() == "/body";
            std::future::ready(if is_body {
                Ok(hyper::Response::new(http_body_util::StreamBody::new(body)))
            } else {
                of_service
            })
        });
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let errors = Rc::new(RefCell::new(Vec::new()));
        let reported = errors.clone();
        let server = serve_hyper(listener, fails)
            .on_error(move |error| reported.borrow_mut().push(chain(&error)));
        annulus::spawn(server.into_future());
        let mut two = client_2(address).await?;
        assert_eq!(client_1(address).await?.send_request(to("/panic", b"")).await?.status(), 500);
        assert!(two.send_request(to("/panic", b"")).await.is_err());
        assert!(client_1(address).await?.send_request(to("/", b"")).await.is_err());
        assert!(two.send_request(to("/", b"")).await.is_err());
        assert!(client_1(address).await?.send_request(to("/body", b"")).await.is_err());
        let broken = async { text(two.send_request(to("/body", b"")).await?).await };
        assert!(broken.await.is_err());
        let errors = errors.borrow().join("; ");
        for text in ["panicked: at once", "the service failed", "the body failed"] {
            assert_eq!(errors.matches(text).count(), 2, "{text}: {errors}");
        }
        Ok(())
    });
}

#[test]
fn panics_before_the_service_runs_end_one_connection() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let errors = Rc::new(RefCell::new(Vec::new()));
        let (count, reported) = (Cell::new(0), errors.clone());
        let make = move |_: &SocketAddr| {
            count.update(|count| count + 1);
            assert!(count.get() != 1, "made {}", count.get());
            TowerToHyperService::new(router())
        };
        let handshakes = Cell::new(0);
        let server = serve_with(listener, make)
            .handshake(move |stream: TcpStream| {
                handshakes.update(|count| count + 1);
                assert!(handshakes.get() != 1, "shaken {}", handshakes.get());
                std::future::ready(Ok((stream, Extensions::new())))
            })
            .on_error(move |error| reported.borrow_mut().push(error.to_string()));
        annulus::spawn(server.into_future());
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await?;
            client.send("GET / HTTP/1.0\r\n\r\n").await?;
            assert_eq!(rest(&mut client).await, "");
        }
        let mut client = client_1(address).await?;
        assert_eq!(text(client.send_request(to("/", b"")).await?).await?, "hello");
        let errors = errors.borrow().join("; ");
        assert!(errors.contains("made 1") && errors.contains("shaken 1"), "{errors}");
        Ok(())
    });
}

#[test]
fn upgraded_connections_count_as_open() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.max_connections(1));
        let stream = annulus_compat::SendStream::new(TcpStream::connect(server.address).await?);
        let url = format!("ws://{}/ws", server.address);
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await?;
        let begun = Instant::now();
        annulus::spawn(async move {
            sleep(SECOND * 7).await;
            drop(socket);
        });
        let mut second = client_1(server.address).await?;
        assert_eq!(text(second.send_request(to("/", b"")).await?).await?, "hello");
        assert!(about(7, begun.elapsed()), "{:?}", begun.elapsed());
        Ok(())
    });
}
