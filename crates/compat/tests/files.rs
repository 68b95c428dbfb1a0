//! tower-http's `ServeDir` over annulus files, without tokio and as a guest of tokio.

use crate::common::{Outcome, as_guest, on_drivers};
use crate::servers::Directory;
use annulus::net::{TcpListener, TcpStream};
use annulus_compat::{Files, tower::serve};
use axum::Router;
use std::fs;
use std::future::IntoFuture;
use std::net::SocketAddr;
use tower_http::services::ServeDir;

/// More than a single read returns.
const FILE_BYTES: usize = 300_000;

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> &str {
        let line = self.head.lines().find(|line| line.starts_with(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head)).split_once(": ").unwrap().1
    }

    #[track_caller]
    fn is(&self, status: u16, body: &[u8]) {
        assert!(self.head.starts_with(&format!("HTTP/1.1 {status} ")), "{}", self.head);
        assert!(self.body == body, "{}: {} bytes", self.head, self.body.len());
    }
}

async fn ask(address: SocketAddr, line: &str, fields: &str) -> std::io::Result<Answer> {
    let mut client = TcpStream::connect(address).await?;
    let head = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n");
    client.send(head).await?;
    let mut answer = Vec::new();
    while let Some(lease) = client.recv().await? {
        answer.extend_from_slice(&lease);
    }
    let end =
        answer.windows(4).position(|four| four == b"\r\n\r\n").expect("the answer has no head") + 4;
    let body = answer.split_off(end);
    Ok(Answer { head: String::from_utf8_lossy(&answer).into_owned(), body })
}

async fn serves_files() -> Outcome {
    let directory = Directory::new("files")?;
    let path = directory.path().join("public");
    let text: Vec<u8> = (0..FILE_BYTES).map(|at| b'a' + (at % 23) as u8).collect();
    fs::create_dir_all(path.join("page"))?;
    fs::write(directory.path().join("secret.txt"), "secret")?;
    fs::write(path.join("text.txt"), &text)?;
    fs::write(path.join("text.txt.gz"), "packed")?;
    fs::write(path.join("page/index.html"), "<p>")?;

    let files = ServeDir::with_backend(path, Files).precompressed_gzip();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = serve(listener, Router::new().nest_service("/files", files));
    let server = annulus::spawn(server.into_future());

    let whole = ask(address, "GET /files/text.txt", "").await?;
    whole.is(200, &text);
    assert_eq!(
        (whole.field("content-length"), whole.field("content-type")),
        ("300000", "text/plain")
    );
    let head = ask(address, "HEAD /files/text.txt", "").await?;
    head.is(200, b"");
    assert_eq!(head.field("content-length"), "300000");

    let part = ask(address, "GET /files/text.txt", "range: bytes=70000-200000\r\n").await?;
    part.is(206, &text[70_000..=200_000]);
    assert_eq!(part.field("content-range"), "bytes 70000-200000/300000");
    ask(address, "GET /files/text.txt", "range: bytes=-5\r\n")
        .await?
        .is(206, &text[FILE_BYTES - 5..]);
    ask(address, "GET /files/text.txt", "range: bytes=300000-\r\n").await?.is(416, b"");

    let since = format!("if-modified-since: {}\r\n", whole.field("last-modified"));
    ask(address, "GET /files/text.txt", &since).await?.is(304, b"");
    let before = "if-unmodified-since: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    ask(address, "GET /files/text.txt", before).await?.is(412, b"");

    let packed = ask(address, "GET /files/text.txt", "accept-encoding: gzip\r\n").await?;
    packed.is(200, b"packed");
    assert_eq!(packed.field("content-encoding"), "gzip");
    ask(address, "GET /files/page/", "").await?.is(200, b"<p>");
    for missing in ["missing.txt", "text.txt/more", "../secret.txt", "%2e%2e/secret.txt"] {
        ask(address, &format!("GET /files/{missing}"), "").await?.is(404, b"");
    }
    server.abort();
    Ok(())
}

#[test]
fn ranges_conditions_and_precompressed_files_are_served_without_tokio() {
    on_drivers(async || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        serves_files().await
    });
}

#[test]
fn files_are_served_in_a_guest_too() {
    as_guest(serves_files());
}
