//! Messages that RFC 9110 and 9112 allow an upstream or a client to send, and invalid ones.

use crate::reverse_proxy::common::{everywhere, simulated};
use crate::reverse_proxy::proxy::Limits;
use crate::reverse_proxy::upstream::{self, raw};
use crate::reverse_proxy::{ask, start};
use annulus::net::TcpStream;
use annulus::time::{Instant, sleep};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const CLOSE_HEADERS: &str = "host: x\r\nconnection: close\r\n\r\n";
const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// `Content-Length` is not the length of a chunked body.
#[test]
fn chunked_response_loses_its_content_length() {
    everywhere(async || {
        for length in ["0", "2", "5", "100"] {
            let upstream = raw("127.0.0.1:0", move |mut stream, _| async move {
                stream.recv().await?;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\ntransfer-encoding: chunked"
                );
                stream.send(format!("{head}\r\n\r\n5\r\nhello\r\n0\r\n\r\n")).await?;
                stream.drain().await
            });
            let proxy = start("127.0.0.1:0", upstream, Limits::default());
            let answer = ask(proxy.address, &format!("GET / HTTP/1.1\r\n{CLOSE_HEADERS}")).await?;
            assert!(
                answer.starts_with("HTTP/1.1 200") && !answer.contains("content-length"),
                "{answer}"
            );
            assert!(answer.ends_with("\r\n5\r\nhello\r\n0\r\n\r\n"), "{length}: {answer}");
        }
        Ok(())
    });
}

#[test]
fn via_names_the_proxy_in_both_directions() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        let request = format!("GET /headers HTTP/1.0\r\nvia: 1.1 first\r\n{CLOSE_HEADERS}");
        let answer = ask(proxy.address, &request).await?;
        let (head, body) = answer.split_once("\r\n\r\n").expect("the answer has no head");
        assert!(head.contains("\r\nvia: 1.1 annulus-"), "{head}");
        assert!(body.contains("via: 1.1 first\nvia: 1.0 annulus-"), "{body}");
        Ok(())
    });
}

/// The upstream reads the head of an upload, and nothing else for a long time.
#[test]
fn upload_times_out_when_the_upstream_stops_reading() {
    simulated(async |_| {
        let open = Rc::new(Cell::new(0));
        let counted = open.clone();
        let upstream = raw("10.0.0.1:80", move |mut stream, _| {
            counted.update(|count| count + 1);
            let counted = counted.clone();
            async move {
                stream.recv().await?;
                // Read again much later, until the end of the connection.
                sleep(SECOND * 100).await;
                while let Ok(Some(_)) = stream.recv().await {}
                counted.update(|count| count - 1);
                Ok(())
            }
        });
        let limits = Limits { progress: SECOND * 9, ..Limits::default() };
        let proxy = start("10.0.0.2:80", upstream, limits);
        let begun = Instant::now();
        let mut client = TcpStream::connect(proxy.address).await?;
        client
            .send(format!("POST / HTTP/1.1\r\ncontent-length: 99000000\r\n{CLOSE_HEADERS}"))
            .await?;
        let (mut receiver, mut sender) = client.into_split();
        let upload = async { while sender.send(vec![0; 100_000]).await.is_ok() {} };
        let answer = async {
            let mut answer = Vec::new();
            while let Ok(Some(lease)) = receiver.recv().await {
                answer.extend_from_slice(&lease);
            }
            answer
        };
        let ((), answer) = futures_util::future::join(upload, answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 504"), "{}", String::from_utf8_lossy(&answer));
        assert!(
            begun.elapsed() >= SECOND * 9 && begun.elapsed() < SECOND * 12,
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(open.get(), 1);
        sleep(SECOND * 100).await;
        assert_eq!(open.get(), 0, "the connection to the upstream is still open");
        Ok(())
    });
}

/// The upstream answers one request per connection, and closes or resets it at the second.
#[test]
fn closed_pooled_connection_is_retried_only_if_safe() {
    everywhere(async || {
        for resets in [false, true] {
            let upstream = raw("127.0.0.1:0", move |mut stream, _| async move {
                stream.recv().await?;
                stream.send(OK_RESPONSE).await?;
                stream.recv().await?;
                if resets {
                    stream.abort();
                }
                Ok(())
            });
            let proxy = start("127.0.0.1:0", upstream, Limits::default());
            for (method, again) in
                [("GET", "200"), ("HEAD", "200"), ("DELETE", "502"), ("POST", "502")]
            {
                for status in ["200", again] {
                    let request = format!("{method} / HTTP/1.1\r\n{CLOSE_HEADERS}");
                    let answer = ask(proxy.address, &request).await?;
                    assert!(
                        answer.starts_with(&format!("HTTP/1.1 {status}")),
                        "{method}: {answer}"
                    );
                }
            }
        }
        Ok(())
    });
}

#[test]
fn request_is_retried_only_once() {
    everywhere(async || {
        let asked = Rc::new(Cell::new(0));
        let counted = asked.clone();
        let upstream = raw("127.0.0.1:0", move |mut stream, _| {
            let counted = counted.clone();
            async move {
                stream.recv().await?;
                counted.update(|count| count + 1);
                Ok(())
            }
        });
        let proxy = start("127.0.0.1:0", upstream, Limits::default());
        let answer = ask(proxy.address, &format!("GET / HTTP/1.1\r\n{CLOSE_HEADERS}")).await?;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert_eq!(asked.get(), 2);
        Ok(())
    });
}

#[test]
fn invalid_chunked_body_gets_400() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        for chunks in [
            "zz\r\nhello\r\n",
            "5\r\nhello!",
            "5;\r\nhello\r\n-1\r\n",
            "5\r\nhello\r\nfffffffffffffffff\r\n",
        ] {
            let head = "POST /wait HTTP/1.1\r\ntransfer-encoding: chunked\r\n";
            let answer = ask(proxy.address, &format!("{head}{CLOSE_HEADERS}{chunks}")).await?;
            assert!(answer.starts_with("HTTP/1.1 400"), "{chunks:?}: {answer}");
        }
        Ok(())
    });
}

#[test]
fn stalled_request_body_gets_408() {
    simulated(async |_| {
        let upstream = upstream::start("10.0.0.1:80");
        let limits = Limits { progress: SECOND * 9, ..Limits::default() };
        let proxy = start("10.0.0.2:80", upstream.address, limits);
        let begun = Instant::now();
        let request = format!("POST /collect HTTP/1.1\r\ncontent-length: 5\r\n{CLOSE_HEADERS}hell");
        let answer = ask(proxy.address, &request).await?;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(begun.elapsed() >= SECOND * 9 && begun.elapsed() < SECOND * 12);
        Ok(())
    });
}
