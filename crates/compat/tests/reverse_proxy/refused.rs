//! Requests that are rewritten or refused, because a server behind the proxy might interpret them
//! differently.

use crate::reverse_proxy::common::{Outcome, everywhere, simulated};
use crate::reverse_proxy::proxy::Limits;
use crate::reverse_proxy::{ask, start, upstream};
use annulus::net::TcpStream;
use annulus::time::Instant;
use annulus_compat::hyper::{Executor, Io};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http2;
use std::time::Duration;

const UPGRADE_REQUEST: &str = "GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n";

#[test]
fn an_ambiguous_host_is_refused() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        for hosts in [
            "",
            "host: a\r\nhost: b\r\n",
            "host: a\r\nhost: a\r\n",
            "host: a/b\r\n",
            "host:\r\n",
            "host: u@a\r\n",
        ] {
            let request = format!("GET /headers HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
            let answer = ask(proxy.address, &request).await?;
            assert!(answer.starts_with("HTTP/1.1 400"), "{hosts:?}: {answer}");
        }
        assert_eq!(upstream.connections.get(), 0, "a request was forwarded");
        Ok(())
    });
}

#[test]
fn the_upstream_gets_one_host() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        for (line, host) in [
            ("GET http://a.example/headers HTTP/1.1\r\nhost: b.example", "a.example"),
            ("GET /headers HTTP/1.1\r\nhost: a.example:81", "a.example:81"),
            ("GET /headers HTTP/1.1\r\nhost: a.example\r\nconnection: host", "a.example"),
            ("GET http://a.example/headers HTTP/1.0", "a.example"),
        ] {
            let answer =
                ask(proxy.address, &format!("{line}\r\nconnection: close\r\n\r\n")).await?;
            let hosts: Vec<_> =
                answer.lines().filter_map(|line| line.strip_prefix("host: ")).collect();
            assert_eq!(hosts, [host], "{line}: {answer}");
        }
        Ok(())
    });
}

/// In HTTP/2 the authority is the host, and cookies may be split over several headers.
#[test]
fn http_2_request_is_translated_to_http_1() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        let stream = Io::new(TcpStream::connect(proxy.address).await?);
        let (mut client, connection) = http2::handshake(Executor, stream).await?;
        annulus::spawn(connection);
        let request = Request::get("http://a.example/headers")
            .header("host", "b.example")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Empty::<Bytes>::new())?;
        let answer = client.send_request(request).await?.into_body().collect().await?.to_bytes();
        let answer = String::from_utf8(answer.to_vec())?;
        let lines = |name: &str| -> Vec<_> {
            answer.lines().filter_map(|line| line.strip_prefix(name)).collect()
        };
        assert_eq!(lines("cookie: "), ["a=1; b=2"], "{answer}");
        assert_eq!(lines("host: "), ["a.example"], "{answer}");
        Ok(())
    });
}

#[test]
fn only_websocket_upgrades_are_forwarded() {
    everywhere(async || {
        let upstream = upstream::start("127.0.0.1:0");
        let proxy = start("127.0.0.1:0", upstream.address, Limits::default());
        for (version, protocol) in [("1.1", "h2c"), ("1.1", "h2c, websocket"), ("1.0", "websocket")]
        {
            let request = format!(
                "GET /headers HTTP/{version}\r\nhost: x\r\nconnection: upgrade, http2-settings, close\r\n\
                 http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\nupgrade: {protocol}\r\n\r\n"
            );
            let answer = ask(proxy.address, &request).await?;
            assert!(answer.contains("/headers") && !answer.contains("upgrade"), "{answer}");
        }
        Ok(())
    });
}

/// The response of an HTTP/1.0 upstream is sent with the proxy's version.
#[test]
fn response_has_the_version_of_the_proxy() {
    everywhere(async || {
        let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
        let proxy = start("127.0.0.1:0", listener.local_addr()?, Limits::default());
        annulus::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.recv().await?;
            stream.send("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold").await?;
            stream.drain().await
        });
        let answer =
            ask(proxy.address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("old"), "{answer}");
        Ok(())
    });
}

/// Attempts an upgrade, and returns the status and the connection.
async fn upgraded(proxy: std::net::SocketAddr) -> std::io::Result<(String, TcpStream)> {
    let mut stream = TcpStream::connect(proxy).await?;
    stream.send(UPGRADE_REQUEST).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend_from_slice(&stream.recv_exact(1).await?);
    }
    Ok((String::from_utf8_lossy(&head[9..12]).into_owned(), stream))
}

#[test]
fn tunnels_are_bounded_in_number_and_in_idle_time() {
    simulated(async |_| -> Outcome {
        let idle = Duration::from_secs(20);
        let upstream = upstream::start("10.0.0.1:80");
        let limits = Limits { tunnels: 1, tunnel_idle: idle, ..Limits::default() };
        let proxy = start("10.0.0.2:80", upstream.address, limits);
        let (status, mut one) = upgraded(proxy.address).await?;
        assert_eq!(status, "101");
        assert_eq!(upgraded(proxy.address).await?.0, "503");
        // A masked ping and its reply restart the idle time.
        annulus::time::sleep(idle - idle / 4).await;
        one.send(b"\x89\x80\0\0\0\0".to_vec()).await?;
        let begun = Instant::now();
        while let Ok(Some(_)) = one.recv().await {}
        let took = begun.elapsed();
        let longest = idle + idle / 4 + Duration::from_secs(1);
        assert!(took >= idle && took < longest, "{took:?}");
        assert_eq!(upgraded(proxy.address).await?.0, "101", "the closed tunnel still counts");
        Ok(())
    });
}
