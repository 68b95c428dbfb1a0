//! Slow readers, and too few buffers or queue entries.

use crate::common::{echo, pair, pattern, receive, touch};
use crate::conformance::mode::Mode;
use annulus::net::{SendHalf, TcpListener, TcpStream};
use annulus::stats::Counters;
use annulus::time::{sleep, timeout};
use annulus::{Builder, spawn};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// More bytes than the bounds and the socket buffers of both ends hold together.
const PLENTY: usize = 32 << 20;

/// Writes `bytes` until a write has waited for 200 ms. Returns how many bytes were accepted.
async fn fill(sending: &mut SendHalf, bytes: &[u8]) -> io::Result<usize> {
    let mut at = 0;
    let deadline = Duration::from_millis(200);
    while at < bytes.len() {
        let end = bytes.len().min(at + 10_000);
        let write = sending.write(&bytes[at..end]);
        match timeout(deadline, write).await {
            Ok(written) => at += written?,
            Err(_elapsed) => break,
        }
    }
    Ok(at)
}

pub(crate) async fn a_slow_reader_blocks_the_writer() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let (_receiving, mut sending) = client.into_split();
    let text = pattern(PLENTY);
    // One byte arms the receive; then no task reads.
    sending.send(vec![0]).await?;
    receive(&mut server, 1).await?;
    let accepted = fill(&mut sending, &text).await?;
    assert!(accepted > 0 && accepted < PLENTY, "{accepted} bytes were accepted unread");
    drop(sending);
    let mut at = 0;
    while let Some(lease) = server.recv().await? {
        assert!(text[at..].starts_with(&lease), "after {at} bytes");
        at += lease.len();
    }
    assert_eq!(at, accepted);
    Ok(())
}

/// Small, so that a socket holds many pages.
const PAGE: u32 = 4096;

pub(crate) fn pages(builder: Builder) -> Builder {
    builder.unread_limit(PAGE as usize).stream_buffer_size(PAGE).stream_buffer_count(64)
}

/// Counts unread bytes with polls in a row, between which nothing can arrive.
pub(crate) async fn unread_bytes_are_bounded() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let (_receiving, mut sending) = client.into_split();
    sending.send(vec![0]).await?;
    receive(&mut server, 1).await?;
    fill(&mut sending, &pattern(PLENTY)).await?;
    let mut unread = 0;
    while let Some(lease) = touch(server.recv()) {
        unread += lease?.expect("the stream ended too early").len();
    }
    let most = 2 * PAGE as usize;
    assert!(
        unread > 0 && unread <= most,
        "{unread} bytes unread, above the bound and a buffer: {most}"
    );
    Ok(())
}

/// Clients that each send bytes to an echo server and compare the echo.
async fn run_clients(clients: usize, len: usize, rounds: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream));
        }
    });
    let client = move |number: usize| async move {
        let sent = pattern(len + number);
        let mut stream = TcpStream::connect(address).await?;
        for _ in 0..rounds {
            let (bytes, expected) = (sent.clone(), sent.len());
            stream.send(bytes).await?;
            assert!(receive(&mut stream, expected).await? == sent, "connection {number}");
        }
        io::Result::Ok(())
    };
    let tasks: Vec<_> = (0..clients).map(|number| spawn(client(number))).collect();
    for task in tasks {
        task.await.expect("the task panicked")?;
    }
    Ok(())
}

pub(crate) async fn a_pool_of_two_serves_thirty() -> io::Result<()> {
    run_clients(30, 900, 20).await
}

pub(crate) fn had_no_buffers(mode: Mode, counters: &Counters) {
    let uses_pool = !mode.is_epoll() && !mode.receives_zero_copy();
    assert!(!uses_pool || counters.enobufs > 0, "{mode:?}: {counters:?}");
}

/// Writers that never stop, and readers that must each get their share.
pub(crate) async fn a_pool_of_eight_is_shared_fairly() -> io::Result<()> {
    let enough = 100_000;
    let received: Vec<_> = (0..12).map(|_| Rc::new(Cell::new(0))).collect();
    // All begin at the same time: the first ones would receive much while the last ones connect.
    let mut pairs = Vec::new();
    for count in &received {
        pairs.push((count.clone(), pair().await?));
    }
    for (count, (mut flooder, mut reader)) in pairs {
        spawn(async move { while flooder.send(vec![1; 8192]).await.is_ok() {} });
        spawn(async move {
            while let Ok(Some(lease)) = reader.recv().await {
                count.set(count.get() + lease.len());
            }
        });
    }
    while received.iter().any(|count| count.get() < enough) {
        let most = received.iter().map(|count| count.get()).max().unwrap_or_default();
        assert!(most < 50 * enough, "starved: {received:?}");
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(crate) async fn held_leases_block_no_stream() -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(pair().await?);
    }
    let mut held = Vec::new();
    for round in 0..20u8 {
        for (client, server) in &mut streams {
            client.send(vec![round; 100]).await?;
            let mut left = 100;
            while left > 0 {
                let lease = server.recv().await?.expect("the stream ended too early");
                left -= lease.len();
                held.push((round, lease));
            }
        }
    }
    assert!(held.iter().all(|(round, lease)| lease.iter().all(|byte| byte == round)));
    Ok(())
}

pub(crate) fn received_into_the_heap(mode: Mode, counters: &Counters) {
    assert!(mode.receives_zero_copy() || counters.heap_receives > 0, "{mode:?}: {counters:?}");
}

pub(crate) async fn tiny_queues_serve_two_hundred() -> io::Result<()> {
    run_clients(200, 10, 10).await
}

pub(crate) fn overflowed(mode: Mode, counters: &Counters) {
    let both = counters.overflows > 0 && counters.queue_full > 0;
    assert!(mode.is_epoll() || both, "{mode:?}: {counters:?}");
}
