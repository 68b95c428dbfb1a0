//! Limits on time and on the number of connections.

use crate::tower::*;

#[test]
fn drain_ends_at_its_timeout() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.drain_timeout(SECOND * 10));
        let mut client = client_1(server.address).await?;
        let asked = annulus::spawn(async move { client.send_request(to("/sleep", b"")).await });
        sleep(SECOND).await;
        server.stop.cancel();
        let begun = Instant::now();
        server.ended.await??;
        assert!(begun.elapsed() >= SECOND * 10 && begun.elapsed() < SECOND * 11);
        assert!(asked.await?.is_err());
        Ok(())
    });
}

/// Sends one byte per second. Returns the server's response, and how long the server took to
/// respond or close.
async fn borne(server: &Running, bytes: &[u8]) -> Result<(String, Duration), common::Failure> {
    let mut slow = TcpStream::connect(server.address).await?;
    let begun = Instant::now();
    let mut bytes = bytes.iter();
    loop {
        match annulus::time::timeout(SECOND, slow.fill_buf()).await {
            Err(_) => {
                if let Some(byte) = bytes.next() {
                    _ = slow.send(vec![*byte]).await;
                }
            }
            Ok(Ok(seen)) if !seen.is_empty() => {
                let answer = rest(&mut slow).await;
                return Ok((answer, begun.elapsed()));
            }
            Ok(_) => return Ok((String::new(), begun.elapsed())),
        }
    }
}

pub(crate) fn about(seconds: u32, took: Duration) -> bool {
    took >= SECOND * seconds && took <= SECOND * (seconds + 2)
}

/// Fails if the future has not completed after a limit of virtual time.
pub(crate) async fn within<F: std::future::Future>(limit: Duration, future: F) -> F::Output {
    annulus::time::timeout(limit, future).await.expect("the future did not complete")
}

#[test]
fn slow_heads_and_idle_connections_are_cut_off() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| {
            server.header_read_timeout(SECOND * 20).idle_timeout(SECOND * 50)
        });
        // Send a head that never ends.
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}", "a".repeat(1000));
        let (_, took) = borne(&server, head.as_bytes()).await?;
        assert!(about(20, took), "{took:?}");
        // Send nothing. Then, to another server, send the HTTP/2 preface, whose 24 bytes take
        // longer than that server's idle timeout.
        let (_, took) = borne(&server, b"").await?;
        assert!(about(20, took), "{took:?}");
        let slow = start("10.0.0.1:81", |server| server.idle_timeout(SECOND * 15));
        let (_, took) = borne(&slow, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        assert!(about(15, took), "{took:?}");
        // The limit also applies after a response.
        let mut client = TcpStream::connect(server.address).await?;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let begun = Instant::now();
        assert!(rest(&mut client).await.ends_with("hello"));
        assert!(about(20, begun.elapsed()), "{:?}", begun.elapsed());
        Ok(())
    });
}

#[test]
fn a_connection_is_not_idle_while_its_request_is_handled() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.idle_timeout(SECOND * 10));
        let mut two = client_2(server.address).await?;
        assert_eq!(text(two.send_request(to("/sleep", b"")).await?).await?, "slept");
        let begun = Instant::now();
        // The server sends `GOAWAY`, and the connection ends.
        while !two.is_closed() {
            sleep(SECOND).await;
        }
        assert!(about(10, begun.elapsed()), "{:?}", begun.elapsed());
        let mut one = client_1(server.address).await?;
        assert_eq!(text(one.send_request(to("/sleep", b"")).await?).await?, "slept");
        Ok(())
    });
}

/// An HTTP/2 peer that never replies, not even to `GOAWAY`.
#[test]
fn silent_http_2_peer_is_dropped() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.idle_timeout(SECOND * 10));
        let mut silent = TcpStream::connect(server.address).await?;
        let begun = Instant::now();
        silent.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        silent.send(vec![0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
        while silent.recv().await?.is_some() {}
        assert!(about(20, begun.elapsed()), "{:?}", begun.elapsed());
        sleep(SECOND).await;
        let errors = server.errors.borrow().join("; ");
        assert!(errors.contains("did not close the idle connection within 10s"), "{errors}");
        Ok(())
    });
}

#[test]
fn slow_request_gets_408() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.request_timeout(SECOND * 5));
        let begun = Instant::now();
        let answer = client_2(server.address).await?.send_request(to("/sleep", b"")).await?;
        assert_eq!(answer.status(), 408);
        assert!(about(5, begun.elapsed()), "{:?}", begun.elapsed());
        // A body that stalls.
        let head = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n";
        let mut slow = TcpStream::connect(server.address).await?;
        slow.send(head).await?;
        slow.send("half").await?;
        let answer = rest(&mut slow).await;
        assert!(
            answer.starts_with("HTTP/1.1 408") && answer.contains("connection: close"),
            "{answer}"
        );
        // A request that is answered in time.
        let mut client = client_1(server.address).await?;
        assert_eq!(text(client.send_request(to("/echo", b"in time")).await?).await?, "in time");
        Ok(())
    });
}

#[test]
fn peer_that_stops_reading_is_dropped_and_uses_little_memory() {
    everywhere(async || {
        let limit = Duration::from_millis(300);
        let server = start("127.0.0.1:0", |server| server.write_timeout(limit));
        let mut stalled = TcpStream::connect(server.address).await?;
        stalled.send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let mut most = 0;
        while server.errors.borrow().is_empty() {
            most = most.max(annulus::stats().expect("in a runtime").memory.held);
            sleep(Duration::from_millis(1)).await;
        }
        let error = server.errors.borrow()[0].clone();
        assert!(error.contains("no write was accepted for 300ms"), "{error}");
        assert!(most < 4_000_000, "{most}");
        let mut other = client_1(server.address).await?;
        assert_eq!(text(other.send_request(to("/", b"")).await?).await?, "hello");
        Ok(())
    });
}

#[test]
fn open_connections_are_limited() {
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server.max_connections(2));
        let (mut one, mut two) = (client_1(server.address).await?, client_1(server.address).await?);
        assert_eq!(text(one.send_request(to("/", b"")).await?).await?, "hello");
        assert_eq!(text(two.send_request(to("/", b"")).await?).await?, "hello");
        let mut three = client_1(server.address).await?;
        let begun = Instant::now();
        annulus::spawn(async move {
            sleep(SECOND * 7).await;
            drop(one);
        });
        assert_eq!(text(three.send_request(to("/", b"")).await?).await?, "hello");
        assert!(about(7, begun.elapsed()), "{:?}", begun.elapsed());
        Ok(())
    });
}

#[test]
fn handshakes_have_a_timeout_and_run_concurrently() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let errors = Rc::new(RefCell::new(Vec::new()));
        let reported = errors.clone();
        // The handshake expects a line from the peer.
        let server = serve(listener, router())
            .header_read_timeout(SECOND * 4)
            .on_error(move |error| reported.borrow_mut().push(error.to_string()))
            .handshake(async |mut stream: TcpStream| {
                let line = annulus::io::AsyncRecv::recv_until(&mut stream, b'\n', 10).await?;
                match line {
                    Some(line) if line.starts_with(b"hi") => Ok((stream, Extensions::new())),
                    _ => Err(io::Error::other("no greeting")),
                }
            });
        annulus::spawn(server.into_future());
        let mut silent = TcpStream::connect("10.0.0.1:80").await?;
        let mut rude = TcpStream::connect("10.0.0.1:80").await?;
        rude.send("no\n").await?;
        assert_eq!(rest(&mut rude).await, "");
        let mut polite = TcpStream::connect("10.0.0.1:80").await?;
        polite.send("hi\nGET / HTTP/1.0\r\n\r\n").await?;
        assert!(rest(&mut polite).await.ends_with("hello"));
        let begun = Instant::now();
        assert_eq!(rest(&mut silent).await, "");
        assert!(begun.elapsed() >= SECOND && begun.elapsed() <= SECOND * 5);
        let errors = errors.borrow().join("; ");
        assert!(errors.contains("no greeting") && errors.contains("within 4s"), "{errors}");
        Ok(())
    });
}
