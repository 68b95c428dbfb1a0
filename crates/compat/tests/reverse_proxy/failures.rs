//! Upstreams that fail, and clients that leave or do not read.

use crate::reverse_proxy::common::{everywhere, simulated};
use crate::reverse_proxy::proxy::{Limits, Proxy};
use crate::reverse_proxy::{ask, start, upstream};
use annulus::net::{TcpListener, TcpStream};
use annulus::time::{Instant, sleep};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

#[test]
fn missing_upstream_gets_502() {
    everywhere(async || {
        // Bind without listening, so that nothing else gets the port.
        let gone = tokio::net::TcpSocket::new_v4()?;
        gone.bind("127.0.0.1:0".parse()?)?;
        let proxy = start("127.0.0.1:0", gone.local_addr()?, Limits::default());
        let answer = ask(proxy.address, &get("/")).await?;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(
            !answer.contains("127.0.0.1"),
            "the response shows the address of the upstream: {answer}"
        );
        Ok(())
    });
}

#[test]
fn disconnecting_upstream_does_not_stop_the_proxy() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        let answer = ask(proxy.address, &get("/break")).await?;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        // It is too late for an error status, so the client's connection is closed too.
        let answer = ask(proxy.address, &get("/half")).await?;
        assert!(answer.contains("content-length: 100") && !answer.contains("502"), "{answer}");
        let answer = ask(proxy.address, &get("/upgrade")).await?;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        // The proxy still works.
        assert!(ask(proxy.address, &get("/headers")).await?.starts_with("HTTP/1.1 200"));
        Ok(())
    });
}

#[test]
fn slow_upstream_times_out() {
    simulated(async |sim| {
        let limits = Limits { response: SECOND * 7, progress: SECOND * 9, ..Limits::default() };
        let upstream = upstream::start("10.0.0.1:80");
        let proxy = start("10.0.0.2:80", upstream.address, limits);
        let begun = Instant::now();
        let answer = ask(proxy.address, &get("/wait")).await?;
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
        assert!(begun.elapsed() >= SECOND * 7 && begun.elapsed() < SECOND * 8);
        upstream.dropped.notified().await;
        // A response body that stalls.
        let begun = Instant::now();
        let answer = ask(proxy.address, &get("/stall")).await?;
        assert!(answer.contains("first") && !answer.ends_with("0\r\n\r\n"), "{answer}");
        assert!(begun.elapsed() >= SECOND * 9 && begun.elapsed() < SECOND * 10);
        // The time of a slow request body does not count towards the response timeout.
        let head =
            "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\n";
        let mut slow = TcpStream::connect(proxy.address).await?;
        slow.send(head).await?;
        for byte in *b"abc" {
            sleep(SECOND * 8).await;
            slow.send(vec![byte]).await?;
        }
        let mut answer = Vec::new();
        while let Some(lease) = slow.recv().await? {
            answer.extend_from_slice(&lease);
        }
        assert!(answer.ends_with(b"abc"));
        drop(sim);
        Ok(())
    });
}

#[test]
fn full_upstream_backlog_gets_504() {
    simulated(async |_| {
        // The backlog is full.
        let full = annulus::net::ListenOptions::new().backlog(1).bind("10.0.0.1:80")?;
        let mut waiting = Vec::new();
        for _ in 0..2 {
            waiting.push(TcpStream::connect("10.0.0.1:80").await?);
        }
        let proxy = start("10.0.0.2:80", full.local_addr()?, Limits::default());
        let begun = Instant::now();
        let answer = ask(proxy.address, &get("/")).await?;
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
        assert!(begun.elapsed() >= SECOND * 5 && begun.elapsed() < SECOND * 6);
        Ok(())
    });
}

/// The client's disconnect drops the upstream's handler.
#[test]
fn client_disconnect_cancels_the_upstream_request() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        let mut client = TcpStream::connect(proxy.address).await?;
        client.send(get("/wait")).await?;
        upstream.waits.notified().await;
        client.abort();
        upstream.dropped.notified().await;
        Ok(())
    });
}

/// The proxy must not buffer more than its bounds while its client does not read.
#[test]
fn unread_response_applies_backpressure_to_the_upstream() {
    simulated(async |_| {
        let upstream = upstream::start("10.0.0.1:80");
        let proxy = start("10.0.0.2:80", upstream.address, Limits::default());
        let mut client = TcpStream::connect(proxy.address).await?;
        client.send(get("/endless")).await?;
        sleep(SECOND * 10).await;
        let made = upstream.made.get();
        sleep(SECOND * 10).await;
        assert_eq!(upstream.made.get(), made);
        let held = annulus::stats().expect("in a runtime").memory.held;
        assert!(made > 10_000 && made < 8_000_000, "{made}");
        assert!(held < 8_000_000, "{held}");
        // The transfer continues when the client reads.
        let mut received = 0;
        while received < 20_000_000 {
            received += client.recv().await?.expect("the response ended early").len();
        }
        Ok(())
    });
}

#[test]
fn connect_requests_and_invalid_upstreams_are_refused() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        let answer =
            ask(proxy.address, "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\nconnection: close\r\n\r\n")
                .await?;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        let _unused = TcpListener::bind("127.0.0.1:0")?;
        for wrong in ["https://a.example", "http://a.example/path", "/"] {
            let error = Proxy::new(wrong.parse()?).err().expect("the upstream was accepted");
            assert!(error.to_string().starts_with(wrong), "{error}");
        }
        Ok(())
    });
}
