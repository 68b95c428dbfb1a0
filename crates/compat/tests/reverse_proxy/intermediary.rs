//! Requirements of RFC 9110 for intermediaries, apart from forwarding messages.

use crate::reverse_proxy::common::{everywhere, simulated};
use crate::reverse_proxy::proxy::Limits;
use crate::reverse_proxy::upstream::{self, raw};
use crate::reverse_proxy::{ask, start};
use annulus::net::TcpStream;
use annulus::time::{Instant, sleep};
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const CLOSE_HEADERS: &str = "host: x\r\nconnection: close\r\n\r\n";
const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const EXPECT_REQUEST: &str =
    "PUT / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";

/// Reads until the bytes read end with `end`, and returns them.
async fn until(stream: &mut TcpStream, end: &str) -> io::Result<String> {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        seen.extend_from_slice(&stream.recv_exact(1).await?);
    }
    String::from_utf8(seen).map_err(io::Error::other)
}

#[test]
fn trailers_pass_in_both_directions() {
    everywhere(async || {
        let upstream = raw("127.0.0.1:0", |mut stream, _| async move {
            let head = until(&mut stream, "\r\n\r\n").await?;
            let body = until(&mut stream, "0\r\n").await? + &until(&mut stream, "\r\n\r\n").await?;
            let te = head.contains("\r\nte: trailers\r\n") && head.contains("connection: te\r\n");
            let is_whole = head.contains("trailer: x-up\r\n") && body.ends_with("x-up: 7\r\n\r\n");
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
            let answer = format!("{head}2\r\nok\r\n0\r\nx-sum: {te} {is_whole}\r\n\r\n");
            stream.send(answer).await?;
            stream.drain().await
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        let head = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-up\r\n\
                    te: gzip, trailers\r\nconnection: close, te\r\n\r\n";
        let request = format!("{head}5\r\nhello\r\n0\r\nx-up: 7\r\n\r\n");
        let answer = ask(proxy.address, &request).await?;
        assert!(answer.contains("trailer: x-sum\r\n"), "{answer}");
        assert!(answer.ends_with("0\r\nx-sum: true true\r\n\r\n"), "{answer}");
        Ok(())
    });
}

#[test]
fn looping_request_is_refused() {
    everywhere(async || {
        let seen = Rc::new(RefCell::new(String::new()));
        let heads = seen.clone();
        let upstream = raw("127.0.0.1:0", move |mut stream, _| {
            let heads = heads.clone();
            async move {
                *heads.borrow_mut() = until(&mut stream, "\r\n\r\n").await?;
                stream.send(OK_RESPONSE).await
            }
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        // Two different proxies are not a loop.
        let before = start("127.0.0.1:0", proxy.address, Limits::default());
        let answer = ask(before.address, &format!("GET / HTTP/1.1\r\n{CLOSE_HEADERS}")).await?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let vias: Vec<String> = seen
            .borrow()
            .lines()
            .filter_map(|line| line.strip_prefix("via: "))
            .map(str::to_owned)
            .collect();
        let [first, second] = &vias[..] else { panic!("not two names: {vias:?}") };
        for (via, status) in [
            (second.clone(), "508"),
            (format!("1.1 other, {second} (a comment)"), "508"),
            (format!("{first}, 2 annulus"), "200"),
        ] {
            let request = format!("GET / HTTP/1.1\r\nvia: {via}\r\n{CLOSE_HEADERS}");
            let answer = ask(proxy.address, &request).await?;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{via}: {answer}");
        }
        Ok(())
    });
}

#[test]
fn many_headers_pass_in_both_directions() {
    everywhere(async || {
        let upstream = raw("127.0.0.1:0", |mut stream, _| async move {
            let head = until(&mut stream, "\r\n\r\n").await?;
            let headers = head.lines().filter(|line| line.starts_with("x-")).collect::<Vec<_>>();
            let headers = headers.join("\r\n");
            stream.send(format!("HTTP/1.1 200 OK\r\n{headers}\r\ncontent-length: 0\r\n\r\n")).await
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        let headers: String = (0..500).map(|n| format!("x-{n}: {n}\r\n")).collect();
        let answer =
            ask(proxy.address, &format!("GET / HTTP/1.1\r\n{headers}{CLOSE_HEADERS}")).await?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("x-0: 0\r\n") && answer.contains("x-499: 499\r\n"), "{answer}");
        Ok(())
    });
}

#[test]
fn early_hints_arrive_before_the_response() {
    const HINT_RESPONSE: &str =
        "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";
    everywhere(async || {
        let upstream = raw("127.0.0.1:0", |mut stream, _| async move {
            loop {
                let head = until(&mut stream, "\r\n\r\n").await?;
                // Send the hint and the response together, or the hint some time before the
                // response.
                if head.starts_with("GET /together") {
                    stream.send(format!("{HINT_RESPONSE}{OK_RESPONSE}")).await?;
                } else {
                    stream.send(HINT_RESPONSE).await?;
                    sleep(Duration::from_millis(20)).await;
                    stream.send(OK_RESPONSE).await?;
                }
            }
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        let mut client = TcpStream::connect(proxy.address).await?;
        for path in ["/together", "/apart", "/together"] {
            client.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await?;
            let hint = until(&mut client, "\r\n\r\n").await?;
            assert!(hint.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n"), "{hint}");
            assert!(hint.contains("via: 1.1 annulus-") && !hint.contains("x-hop"), "{hint}");
            let answer = until(&mut client, "\r\n\r\nok").await?;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        // Pipelined requests: each response is complete, and its hint, if any, comes before it.
        let requests = "GET /together HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10);
        client.send(requests).await?;
        for _ in 0..10 {
            let answer = until(&mut client, "\r\n\r\nok").await?;
            let hint = answer.find("HTTP/1.1 103").unwrap_or(0);
            assert_eq!((hint, answer.matches("HTTP/1.1 200").count()), (0, 1), "{answer}");
        }
        let answer = ask(proxy.address, "GET / HTTP/1.0\r\n\r\n").await?;
        assert!(
            answer.starts_with("HTTP/1.0 200"),
            "HTTP/1.0 has no informational responses: {answer}"
        );
        Ok(())
    });
}

/// Starts an upstream that reads a request head with `Expect: 100-continue`, and then calls
/// `answer`.
fn asked<F>(address: &str, answer: impl Fn(TcpStream) -> F + 'static) -> SocketAddr
where
    F: Future<Output = io::Result<()>> + 'static,
{
    let answer = Rc::new(answer);
    raw(address, move |mut stream, _| {
        let answer = answer.clone();
        async move {
            let head = until(&mut stream, "\r\n\r\n").await?;
            assert!(head.contains("expect: 100-continue\r\n"), "{head}");
            answer(stream).await
        }
    })
}

#[test]
fn continue_is_sent_once_the_upstream_sends_it() {
    simulated(async |_| {
        let upstream = asked("10.0.0.1:80", async |mut stream| {
            sleep(3 * SECOND).await;
            stream.send("HTTP/1.1 100 Continue\r\n\r\n").await?;
            assert_eq!(until(&mut stream, "body").await?, "body");
            stream.send(OK_RESPONSE).await?;
            stream.drain().await
        });
        let proxy = start("10.0.0.2:80", upstream, Limits::default());
        let (mut client, begun) = (TcpStream::connect(proxy.address).await?, Instant::now());
        client.send(EXPECT_REQUEST).await?;
        assert_eq!(until(&mut client, "\r\n\r\n").await?, "HTTP/1.1 100 Continue\r\n\r\n");
        let took = begun.elapsed();
        assert!(took >= 3 * SECOND && took < 4 * SECOND, "{took:?}");
        client.send("body").await?;
        assert!(until(&mut client, "\r\n\r\nok").await?.starts_with("HTTP/1.1 200"));
        Ok(())
    });
}

#[test]
fn no_continue_is_sent_if_the_upstream_refuses() {
    everywhere(async || {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let bodies = ended.clone();
        let upstream = asked("127.0.0.1:0", move |mut stream| {
            let bodies = bodies.clone();
            async move {
                stream.send("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno").await?;
                let mut body = Vec::new();
                while let Ok(Some(lease)) = stream.recv().await {
                    body.extend_from_slice(&lease);
                }
                bodies.borrow_mut().push(body);
                Ok(())
            }
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        // The proxy responds and closes the connection, because the client may or may not send the
        // body after that.
        let answer = ask(proxy.address, EXPECT_REQUEST).await?;
        assert!(answer.starts_with("HTTP/1.1 401") && answer.ends_with("no"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        while ended.borrow().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*ended.borrow(), [b""], "the upstream received part of the body");
        Ok(())
    });
}

#[test]
fn upstream_without_expect_support_gets_the_body() {
    simulated(async |_| {
        let upstream = asked("10.0.0.1:80", async |mut stream| {
            assert_eq!(until(&mut stream, "body").await?, "body");
            stream.send(OK_RESPONSE).await?;
            stream.drain().await
        });
        let limits = Limits { consent: 5 * SECOND, ..Limits::default() };
        let proxy = start("10.0.0.2:80", upstream, limits);
        let (mut client, begun) = (TcpStream::connect(proxy.address).await?, Instant::now());
        client.send(EXPECT_REQUEST).await?;
        until(&mut client, "HTTP/1.1 100 Continue\r\n\r\n").await?;
        let took = begun.elapsed();
        assert!(took >= 5 * SECOND && took < 6 * SECOND, "{took:?}");
        client.send("body").await?;
        assert!(until(&mut client, "\r\n\r\nok").await?.starts_with("HTTP/1.1 200"));
        Ok(())
    });
}

/// The upstream closes with most of the body unread, so the connection is reset.
#[test]
fn early_response_reaches_the_client() {
    const ROUND_COUNT: usize = 100;
    everywhere(async || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let upstream = listener.local_addr()?;
        let refuses = thread::spawn(move || {
            for _ in 0..ROUND_COUNT {
                let (mut stream, _) = listener.accept()?;
                // Read into the body, so that unread data remains at the close.
                stream.read_exact(&mut [0; 1000])?;
                let head =
                    "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 4\r\nconnection: close";
                stream.write_all(format!("{head}\r\n\r\nmuch").as_bytes())?;
            }
            io::Result::Ok(())
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        for round in 0..ROUND_COUNT {
            let mut client = TcpStream::connect(proxy.address).await?;
            client
                .send(format!("POST / HTTP/1.1\r\ncontent-length: 9000000\r\n{CLOSE_HEADERS}"))
                .await?;
            let (mut receiver, mut sender) = client.into_split();
            let upload = async {
                for _ in 0..90 {
                    if sender.send(vec![0; 100_000]).await.is_err() {
                        break;
                    }
                }
            };
            let answer = async {
                let mut answer = Vec::new();
                while let Ok(Some(lease)) = receiver.recv().await {
                    answer.extend_from_slice(&lease);
                }
                String::from_utf8_lossy(&answer).into_owned()
            };
            let ((), answer) = futures_util::future::join(upload, answer).await;
            assert!(answer.starts_with("HTTP/1.1 413"), "round {round}: {answer}");
            assert!(answer.ends_with("much"), "round {round}: {answer}");
        }
        refuses.join().expect("the upstream panicked")?;
        Ok(())
    });
}

#[test]
fn ipv4_client_address_is_forwarded_as_ipv4() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("[::]:0", upstream.address, Limits::default());
        let address = SocketAddr::from(([127, 0, 0, 1], proxy.address.port()));
        let answer = ask(address, &format!("GET /headers HTTP/1.1\r\n{CLOSE_HEADERS}")).await?;
        assert!(answer.contains("x-forwarded-for: 127.0.0.1\n"), "{answer}");
        Ok(())
    });
}

#[test]
fn trace_is_refused() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        let answer =
            ask(proxy.address, &format!("TRACE /headers HTTP/1.1\r\n{CLOSE_HEADERS}")).await?;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        assert_eq!(upstream.connections.get(), 0, "the request was forwarded");
        Ok(())
    });
}
