//! Connections of HTTP/1 that are released while they are idle, by the server of feature `tower`.

#[path = "../common/mod.rs"]
mod common;
mod conversation;
mod endings;
mod held;
mod limits;
mod memory;
mod server;

use annulus::net::TcpStream;
use annulus::time::{Instant, sleep};
use common::{Failure, Outcome, everywhere, simulated};
use server::{Running, start};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const GET: &str = "GET /1 HTTP/1.1\r\nhost: x\r\n\r\n";

/// The server of this test releases a connection once it is idle for at least this time.
const RELEASE: Duration = Duration::from_millis(100);
const HEADER: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(30);

/// The body of an answer, which has so many bytes.
async fn response(stream: &mut TcpStream, size: usize) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend_from_slice(&stream.recv_exact(1).await?);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&head));
    Ok(if size == 0 { Vec::new() } else { stream.recv_exact(size).await?.to_vec() })
}

/// Asks for a byte.
async fn ask(stream: &mut TcpStream) -> Outcome {
    stream.send(GET).await?;
    assert_eq!(response(stream, 1).await?, b"x");
    Ok(())
}

/// How long it takes until a stream ends.
async fn end(stream: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    while let Ok(Some(_)) = stream.recv().await {}
    begun.elapsed()
}
