//! Invariant 23: streams are paused at the memory limit, and every byte still arrives.

use crate::common::{pair, pattern, receive};
use crate::conformance::mode::Mode;
use annulus::net::{RecvHalf, TcpStream, UnixStream};
use annulus::stats::Counters;
use annulus::time::sleep;
use annulus::{Builder, MemoryLimit, counters, spawn};
use std::io;
use std::time::Duration;

/// Number of streams that are read late, and of bytes sent to each: together several times the
/// limit.
const STREAMS: usize = 24;
const BYTES: usize = 200_000;
const PINGS: u8 = 20;

pub(crate) fn little_memory(builder: Builder) -> Builder {
    builder.unread_limit(256 * 1024).memory_limit(Some(MemoryLimit::new(MemoryLimit::MIN)))
}

pub(crate) fn were_paused(_: Mode, counters: &Counters) {
    assert!(counters.memory_pauses > 0, "{counters:?}");
    assert_eq!(counters.memory_limit, MemoryLimit::MIN as u64);
}

fn text(stream: usize) -> Vec<u8> {
    pattern(BYTES + 7 * stream).split_off(7 * stream)
}

/// Sends a text in pieces, and shuts down.
async fn write(client: TcpStream, stream: usize) -> io::Result<RecvHalf> {
    let (receiving, mut sending) = client.into_split();
    for piece in text(stream).chunks(10_000) {
        sending.send(piece.to_vec()).await?;
    }
    sending.shutdown().await?;
    Ok(receiving)
}

/// Echoes small texts on a stream that holds too little to be paused.
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

/// Readers that start late find every byte, and a stream that holds nothing continues in the
/// meantime.
pub(crate) async fn paused_streams_resume() -> io::Result<()> {
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let (client, mut server) = pair().await?;
        let writer = spawn(write(client, number));
        // The first byte arms the receive; then nothing is read.
        let first = server.recv().await?.expect("the stream ended too early");
        streams.push((number, server, writer, first.to_vec()));
    }
    while counters().expect("not in a runtime").streams_paused == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    ping().await?;
    for (number, mut server, writer, mut heard) in streams {
        while let Some(lease) = server.recv().await? {
            heard.extend_from_slice(&lease);
        }
        assert!(heard == text(number), "stream {number}: {} bytes of {BYTES}", heard.len());
        drop(writer.await.expect("the task panicked")?);
    }
    while counters().expect("not in a runtime").streams_paused > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(crate) fn a_mebibyte(builder: Builder) -> Builder {
    builder.memory_limit(Some(MemoryLimit::new(1 << 20)))
}

/// Each end sends in one task and receives in another. Their unsent bytes exceed what the limit
/// leaves them.
pub(crate) async fn ends_that_both_send_and_read_progress() -> io::Result<()> {
    const PIECES: usize = 6;
    for (pairs, piece) in [(1, 30_000), (12, 30_000), (1, 2_000_000)] {
        let mut readers = Vec::new();
        for _ in 0..pairs {
            let (one, other) = UnixStream::pair()?;
            for stream in [one, other] {
                let (mut receiving, mut sending) = stream.into_split();
                spawn(async move {
                    for _ in 0..PIECES {
                        sending.send(vec![7; piece]).await?;
                    }
                    sending.shutdown().await
                });
                readers.push(spawn(async move { receive(&mut receiving, usize::MAX).await }));
            }
        }
        for reader in readers {
            assert_eq!(reader.await.expect("the task panicked")?.len(), PIECES * piece);
        }
    }
    Ok(())
}

/// A reader asks for more in one piece than a stream may hold, while another stream holds memory
/// that nobody reads.
pub(crate) async fn pieces_above_the_allowance_arrive() -> io::Result<()> {
    let (mut idle, _is_not_read) = UnixStream::pair()?;
    spawn(async move { idle.send(vec![0; 700_000]).await });
    for len in [50_000, 250_000] {
        let (mut one, mut other) = UnixStream::pair()?;
        let text = pattern(2 * len);
        let sending = spawn({
            let text = text.clone();
            async move {
                for piece in text.chunks(9000) {
                    one.send(piece.to_vec()).await?;
                }
                one.drain().await
            }
        });
        assert!(other.fill_at_least(len).await?[..len] == text[..len]);
        assert!(*other.recv_exact(len).await? == text[..len]);
        assert!(receive(&mut other, len).await? == text[len..]);
        sending.await.expect("the task panicked")?;
    }
    Ok(())
}
