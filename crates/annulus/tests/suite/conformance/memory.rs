//! Invariant 23: at the memory limit streams are held back, and each byte arrives all the same.

use crate::common::{pair, pattern, receive};
use crate::conformance::mode::Mode;
use annulus::net::{RecvHalf, TcpStream};
use annulus::time::sleep;
use annulus::{Builder, Counters, MemoryLimit, counters, spawn};
use std::io;
use std::time::Duration;

/// Streams that are read late, and how much is sent to each: together several times the limit.
const STREAMS: usize = 24;
const BYTES: usize = 200_000;
const PINGS: u8 = 20;

pub(crate) fn little_memory(builder: Builder) -> Builder {
    builder.recv_bound(256 * 1024).memory_limit(MemoryLimit::new(MemoryLimit::LEAST))
}

pub(crate) fn were_held_back(_: Mode, counters: &Counters) {
    assert!(counters.memory_pauses > 0, "{counters:?}");
    assert_eq!(counters.memory_limit, MemoryLimit::LEAST as u64);
}

fn text(stream: usize) -> Vec<u8> {
    pattern(BYTES + 7 * stream).split_off(7 * stream)
}

/// Sends a text in pieces, and ends.
async fn write(client: TcpStream, stream: usize) -> io::Result<RecvHalf> {
    let (receiving, mut sending) = client.split();
    for piece in text(stream).chunks(10_000) {
        sending.send(piece.to_vec()).await?;
    }
    sending.shutdown().await?;
    Ok(receiving)
}

/// Sends a text back while it comes, which is not what it is held back for.
async fn ping() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    for number in 0..PINGS {
        client.send(vec![number; 500]).await?;
        let heard = receive(&mut server, 500).await?;
        server.send(heard).await?;
        assert_eq!(receive(&mut client, 500).await?, [number; 500]);
    }
    Ok(())
}

/// Readers that come late find every byte, and a stream that holds nothing goes on meanwhile.
pub(crate) async fn streams_that_were_held_back_go_on() -> io::Result<()> {
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let (client, mut server) = pair().await?;
        let writer = spawn(write(client, number));
        // The first byte arms the receive; then nothing is read.
        let first = server.recv().await?.expect("no end yet");
        streams.push((number, server, writer, first.to_vec()));
    }
    while counters().expect("in a runtime").streams_held_back == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    ping().await?;
    for (number, mut server, writer, mut heard) in streams {
        while let Some(lease) = server.recv().await? {
            heard.extend_from_slice(&lease);
        }
        assert!(heard == text(number), "stream {number}: {} bytes of {BYTES}", heard.len());
        drop(writer.await.expect("no panic")?);
    }
    while counters().expect("in a runtime").streams_held_back > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
