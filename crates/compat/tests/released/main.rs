//! Idle HTTP/1 connections that the server of feature `tower` releases.

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
const GET_REQUEST: &str = "GET /1 HTTP/1.1\r\nhost: x\r\n\r\n";

/// Idle time after which the server of these tests releases a connection.
const RELEASE_DELAY: Duration = Duration::from_millis(100);
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a response, and returns its body of `size` bytes.
async fn response(stream: &mut TcpStream, size: usize) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend_from_slice(&stream.recv_exact(1).await?);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&head));
    Ok(if size == 0 { Vec::new() } else { stream.recv_exact(size).await?.to_vec() })
}

/// Requests one byte.
async fn ask(stream: &mut TcpStream) -> Outcome {
    stream.send(GET_REQUEST).await?;
    assert_eq!(response(stream, 1).await?, b"x");
    Ok(())
}

/// Reads the rest of a stream, and returns how long it took to end.
async fn end(stream: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    while let Ok(Some(_)) = stream.recv().await {}
    begun.elapsed()
}
