//! Borrowed bytes, written, flushed and drained as in tokio.

use crate::common::{pair, pattern, receive, touch};
use crate::conformance::mode::Mode;
use annulus::io::AsyncSend;
use annulus::net::TcpStream;
use annulus::stats::Counters;
use annulus::{Lease, spawn};
use std::io::{self, ErrorKind, IoSlice};

/// Number of bytes: more than the bound and the kernel can hold.
const LARGE: usize = 8 << 20;

pub(crate) async fn written_bytes_leave_without_further_polls() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(LARGE);
    let written = client.write(&text).await?;
    assert!((1..LARGE).contains(&written), "{written} of {LARGE} bytes were written");
    touch(client.flush()).expect("a flush never waits")?;
    assert!(receive(&mut server, written).await? == text[..written]);
    drop(client);
    assert!(server.recv().await?.is_none(), "more bytes were sent than reported");
    Ok(())
}

pub(crate) async fn a_drain_waits_for_written_bytes() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(LARGE);
    let mut written = 0;
    while let Some(count) = touch(client.write(&text[written..])).transpose()? {
        written += count;
        touch(client.flush()).expect("a flush never waits")?;
    }
    assert!(touch(client.drain()).is_none(), "the drain ended before the peer had read");
    let reader = spawn(async move { receive(&mut server, written).await });
    client.drain().await?;
    assert!(reader.await.expect("the task panicked")? == text[..written]);
    Ok(())
}

pub(crate) async fn slices_arrive_in_order_with_chunks() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(200_000);
    let expected = text.clone();
    let reader = spawn(async move { receive(&mut server, expected.len()).await });
    let (mut rest, mut turn) = (&text[..], 0);
    while !rest.is_empty() {
        turn += 1;
        let piece = &rest[..rest.len().min(turn % 7 * 1000 + 13)];
        let count = if turn % 3 == 0 {
            client.send(piece.to_vec()).await?;
            piece.len()
        } else {
            let (one, other) = piece.split_at(turn % 13);
            let slices = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(other)];
            client.write_vectored(&slices).await?
        };
        assert!((1..=piece.len()).contains(&count));
        rest = &rest[count..];
    }
    assert!(reader.await.expect("the task panicked")? == text);
    Ok(())
}

pub(crate) async fn pushed_bytes_leave_at_once_and_in_order() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let direct = || annulus::counters().expect("in a runtime").direct_sends;
    client.push()?;
    let before = direct();
    client.send("one, ").await?;
    client.push()?;
    assert_eq!(direct(), before + 1, "a push made no call");
    client.send("two, ").await?;
    client.send("three").await?;
    client.push()?;
    client.push()?;
    assert_eq!(direct(), before + 2, "a push sent nothing, or twice");
    assert_eq!(receive(&mut server, 15).await?, b"one, two, three");
    // Bytes that do not fit into the socket are sent later.
    let text = pattern(LARGE);
    let expected = text.clone();
    let reader = spawn(async move { receive(&mut server, expected.len() + 4).await });
    touch(client.send(text.clone()));
    client.push()?;
    client.send("last").await?;
    client.push()?;
    client.drain().await?;
    let received = reader.await.expect("no panic")?;
    assert!(received[..LARGE] == text && received[LARGE..] == *b"last");
    Ok(())
}

pub(crate) async fn writing_no_bytes_writes_nothing() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    assert_eq!(touch(client.write(&[])).expect("an empty write waited")?, 0);
    assert_eq!(
        touch(client.write_vectored(&[IoSlice::new(&[])])).expect("an empty write waited")?,
        0
    );
    assert_eq!(touch(client.write_vectored(&[])).expect("an empty write waited")?, 0);
    touch(client.write_all(&[])).expect("an empty write waited")?;
    drop(server);
    Ok(())
}

pub(crate) async fn halves_write_all() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let text = pattern(300_000);
    let (_receiving, mut sending) = client.into_split();
    let expected = text.clone();
    let writer = spawn(async move {
        sending.write_all(&text).await?;
        sending.flush().await
    });
    assert!(receive(&mut server, usize::MAX).await? == expected);
    writer.await.expect("the task panicked")
}

pub(crate) async fn a_flush_returns_the_error_of_a_send() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    client.abort();
    let error = loop {
        if let Err(error) = write_and_wait(&mut server).await {
            break error;
        }
    };
    let errors = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(errors.contains(&error.kind()), "{error}");
    let error = touch(server.flush()).expect("a flush never waits").unwrap_err();
    assert!(errors.contains(&error.kind()), "another error was returned the second time: {error}");
    assert!(server.write(b"more").await.is_err() && server.write_all(b"more").await.is_err());
    Ok(())
}

async fn write_and_wait(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"hello?").await?;
    stream.drain().await
}

pub(crate) async fn nothing_is_written_after_a_shutdown() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.write_all(b"the end").await?;
    client.shutdown().await?;
    assert_eq!(client.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    touch(client.flush()).expect("a flush never waits")?;
    assert_eq!(receive(&mut server, 100).await?, b"the end");
    Ok(())
}

/// Each large write is sent during its call, unless a kernel thread or other operations carry the
/// bytes.
pub(crate) async fn large_writes_go_to_the_kernel_at_once() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(12_000);
    for _ in 0..10 {
        let (head, body) = text.split_at(100);
        client.send(head.to_vec()).await?;
        client.write_all(body).await?;
        assert!(receive(&mut server, text.len()).await? == text);
    }
    Ok(())
}

pub(crate) fn went_directly(mode: Mode, counters: &Counters) {
    let Counters { direct_sends, copied_bytes, .. } = *counters;
    if mode.is_simulated() {
        // A simulated network's buffers may accept less at once.
        assert!(direct_sends >= 10);
    } else {
        assert_eq!(
            (direct_sends, copied_bytes),
            (10, 0),
            "the chunk before a write was not sent with the write"
        );
    }
}

/// How bytes are queued for sending.
#[derive(Clone, Copy, Debug)]
enum Way {
    Owned,
    Lease,
    Borrowed,
    Slices,
}

/// Queues one byte in a single poll.
fn queue(stream: &mut TcpStream, way: Way, byte: u8, lease: Lease) -> io::Result<()> {
    let bytes = [byte];
    let slices = [IoSlice::new(&bytes), IoSlice::new(&[])];
    match way {
        Way::Owned => touch(stream.send(vec![byte])),
        Way::Lease => touch(stream.send(lease)),
        Way::Borrowed => touch(stream.write(&bytes)).map(|written| written.map(drop)),
        Way::Slices => touch(stream.write_vectored(&slices)).map(|written| written.map(drop)),
    }
    .expect("there is space")
}

/// The runtime assumes that the first send is complete without waiting for a completion, and no
/// other event arrives. Bytes queued after it must still be sent.
pub(crate) async fn bytes_queued_after_a_small_send_leave_without_further_events() -> io::Result<()>
{
    const WAYS: [Way; 4] = [Way::Owned, Way::Lease, Way::Borrowed, Way::Slices];
    let (mut client, mut server) = pair().await?;
    let (mut source, mut other) = pair().await?;
    for first in WAYS {
        for (second, third) in WAYS.into_iter().flat_map(|second| WAYS.map(|third| (second, third)))
        {
            let mut leases = Vec::new();
            while leases.len() < 3 {
                source.send(vec![b'l']).await?;
                leases.extend(other.recv().await?);
            }
            let waits = spawn(async move { (receive(&mut server, 3).await, server) });
            // The receive is already armed, so starting it causes no event.
            annulus::task::yield_now().await;
            for (way, lease) in [first, second, third].into_iter().zip(leases) {
                queue(&mut client, way, b'l', lease)?;
            }
            let bytes;
            (bytes, server) = waits.await.expect("the task panicked");
            assert_eq!(bytes?, b"lll", "{first:?}, {second:?}, {third:?}");
        }
    }
    Ok(())
}
