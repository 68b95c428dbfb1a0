//! Received bytes that are peeked, partly consumed, gathered, and taken without waiting.

use crate::common::{pair, pattern, receive, touch};
use annulus::io::{AsyncRecv, FromTokio};
use annulus::net::{TcpStream, UnixOptions, UnixStream};
use annulus::spawn;
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::task::{Poll, ready};
use std::time::Duration;

/// Receives until one call shows `n` bytes in one piece, and leaves them unconsumed.
async fn peek_all(stream: &mut TcpStream, n: usize) -> io::Result<Vec<u8>> {
    let shown = stream.fill_at_least(n).await?.to_vec();
    assert!(shown.len() >= n, "{} of {n} bytes", shown.len());
    Ok(shown)
}

pub(crate) async fn shown_bytes_stay_until_they_are_consumed() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("head").await?;
    assert_eq!(peek_all(&mut server, 4).await?, b"head");
    assert_eq!(server.fill_buf().await?, b"head");
    server.consume(0);
    server.consume(3);
    let rest = server.fill_buf().await?;
    let address = rest.as_ptr();
    assert_eq!(rest, b"d");
    let lease = server.recv().await?.expect("the stream ended too early");
    assert_eq!((&*lease, lease.as_ptr()), (&b"d"[..], address), "the unread bytes were copied");
    client.send("!").await?;
    assert_eq!(server.fill_buf().await?, b"!");
    server.consume(1);
    client.shutdown().await?;
    assert_eq!(server.fill_buf().await?, b"");
    server.consume(0);
    assert_eq!(server.fill_at_least(100).await?, b"");
    assert!(server.recv().await?.is_none());
    Ok(())
}

/// Peeks many times in one poll, for as many bytes as have arrived and for more. The task's budget
/// is 1.
async fn look_often(from: &mut (impl AsyncRecv + Unpin), shown: &[u8]) -> io::Result<()> {
    poll_fn(|cx| {
        // The last of these peeks waits for the end.
        for n in [1, shown.len(), shown.len() + 1] {
            let bytes = ready!(from.poll_fill_at_least(cx, n))?;
            assert_eq!(bytes, shown);
        }
        for look in 0..100 {
            for n in [0, 1, shown.len(), shown.len() + 1, 99] {
                let again = from.poll_fill_at_least(cx, n).map_ok(|bytes| bytes == shown);
                assert!(matches!(again, Poll::Ready(Ok(true))), "attempt {look} for {n} bytes");
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

pub(crate) async fn a_peek_that_was_ready_is_ready_again() -> io::Result<()> {
    for text in ["", "some"] {
        let streams = async || {
            let (mut client, server) = pair().await?;
            client.send(text).await?;
            drop(client);
            io::Result::Ok(server)
        };
        look_often(&mut streams().await?, text.as_bytes()).await?;
        look_often(&mut streams().await?.into_split().0, text.as_bytes()).await?;
        let mut slice = text.as_bytes();
        look_often(&mut slice, text.as_bytes()).await?;
        look_often(&mut FromTokio::new(streams().await?), text.as_bytes()).await?;
        look_often(&mut Box::new(streams().await?), text.as_bytes()).await?;
    }
    // An error is also reported every time.
    let (mut client, mut server) = pair().await?;
    client.send("some").await?;
    assert_eq!(server.fill_at_least(4).await?, b"some");
    client.abort();
    let error = server.fill_at_least(5).await.unwrap_err();
    poll_fn(|cx| {
        for _ in 0..100 {
            let again = server.poll_fill_at_least(cx, 5).map_ok(drop);
            assert!(matches!(again, Poll::Ready(Err(again)) if again.kind() == error.kind()));
        }
        Poll::Ready(Ok(()))
    })
    .await
}

pub(crate) async fn bytes_of_several_leases_are_shown_in_one_piece() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(100_000);
    let sent = text.clone();
    let sender = spawn(async move {
        for piece in sent.chunks(9973) {
            client.send(piece.to_vec()).await?;
        }
        client.shutdown().await
    });
    let mut at = 0;
    for n in [1, 10, 5000, 5001, 30_000] {
        assert!(
            server.fill_at_least(n).await?.starts_with(&text[at..at + n]),
            "{n} bytes from {at}"
        );
        server.consume(n / 2);
        at += n / 2;
        let lease = server.recv_exact(n).await?;
        assert!(*lease == text[at..at + n], "exactly {n} bytes from {at}");
        at += n;
    }
    assert!(
        server.fill_at_least(usize::MAX).await? == &text[at..],
        "the peek did not return the bytes before the end"
    );
    let error = server.recv_exact(text.len()).await.unwrap_err();
    let expected = format!("the stream ended after {} of {} bytes", text.len() - at, text.len());
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::UnexpectedEof, expected));
    assert!(receive(&mut server, usize::MAX).await? == text[at..], "received bytes were lost");
    assert_eq!(*server.recv_exact(0).await?, []);
    sender.await.expect("the task panicked")
}

pub(crate) async fn an_error_comes_after_shown_bytes() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("half").await?;
    assert_eq!(peek_all(&mut server, 4).await?, b"half");
    client.abort();
    assert_eq!(server.fill_at_least(5).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.recv_exact(5).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.fill_buf().await?, b"half");
    assert_eq!(server.recv().await?.as_deref(), Some(&b"half"[..]));
    assert_eq!(server.recv().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.try_recv().unwrap_err().kind(), ErrorKind::ConnectionReset);
    Ok(())
}

pub(crate) async fn dropped_peeks_lose_no_byte() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(60_000);
    let sent = text.clone();
    let sender = spawn(async move {
        for piece in sent.chunks(1009) {
            client.send(piece.to_vec()).await?;
            sleep(Duration::from_micros(50)).await;
        }
        client.shutdown().await
    });
    let mut got = Vec::new();
    for wait in [0, 20, 100, 400].into_iter().map(Duration::from_micros).cycle() {
        touch(server.fill_at_least(3000));
        touch(server.recv_exact(700)).into_iter().try_for_each(|lease| {
            got.extend_from_slice(&lease?);
            io::Result::Ok(())
        })?;
        match timeout(wait, server.recv_exact(2500)).await {
            Err(_) => {}
            Ok(Ok(lease)) => got.extend_from_slice(&lease),
            Ok(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                got.extend(receive(&mut server, usize::MAX).await?);
                break;
            }
        }
        if let Ok(shown) = timeout(wait, server.fill_buf()).await {
            let first = shown?.first().copied();
            got.extend(first);
            server.consume(usize::from(first.is_some()));
        }
    }
    assert!(got == text);
    sender.await.expect("the task panicked")
}

/// Takes the received bytes, trying again every 100 µs.
async fn poll_until_received(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        match stream.try_recv() {
            Ok(lease) => return Ok(lease.map(|lease| lease.to_vec()).unwrap_or_default()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        sleep(Duration::from_micros(100)).await;
    }
}

pub(crate) async fn received_bytes_are_taken_without_waiting() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    assert_eq!(server.try_recv().unwrap_err().kind(), ErrorKind::WouldBlock);
    client.send("ping").await?;
    let mut got = Vec::new();
    while got.len() < 4 {
        got.extend(poll_until_received(&mut server).await?);
    }
    assert_eq!(got, b"ping");
    client.send("pong").await?;
    assert_eq!(server.fill_at_least(4).await?, b"pong");
    server.consume(1);
    assert_eq!(
        server.try_recv()?.as_deref(),
        Some(&b"ong"[..]),
        "the bytes that were shown first are not received first"
    );
    client.shutdown().await?;
    assert_eq!(poll_until_received(&mut server).await?, b"", "bytes arrived after the end");
    assert!(server.try_recv()?.is_none());
    Ok(())
}

/// A task that has polled is still woken if another call then takes nothing.
pub(crate) async fn taking_nothing_leaves_a_waiting_task_its_wake() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let server = std::rc::Rc::new(std::cell::RefCell::new(server));
    let reader = server.clone();
    let task = spawn(std::future::poll_fn(move |cx| {
        reader
            .borrow_mut()
            .poll_recv(cx)
            .map_ok(|lease| lease.expect("the stream ended too early").len())
    }));
    yield_now().await;
    assert_eq!(server.borrow_mut().try_recv().unwrap_err().kind(), ErrorKind::WouldBlock);
    client.send("x").await?;
    assert_eq!(task.await.expect("the task panicked")?, 1);
    Ok(())
}

/// Halves, and a connection on another runtime, start with the bytes that were shown but not
/// consumed.
pub(crate) async fn shown_bytes_move_with_the_stream() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("0123456789").await?;
    assert_eq!(peek_all(&mut server, 10).await?, b"0123456789");
    assert_eq!(*server.recv_exact(2).await?, *b"01");
    let mut moved = match server.into_parts().await {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(error),
        Ok(parts) => {
            assert_eq!(parts.received, b"23456789");
            TcpStream::from_parts(parts)?
        }
    };
    client.send("ab").await?;
    assert_eq!(moved.fill_at_least(10).await?, b"23456789ab");
    moved.consume(3);
    let (mut receiving, _sending) = moved.into_split();
    assert_eq!(receiving.fill_buf().await?, b"56789ab");
    receiving.consume(5);
    client.shutdown().await?;
    assert_eq!(receiving.fill_at_least(3).await?, b"ab");
    Ok(())
}

/// Gathered bytes keep the descriptors of all their messages. Descriptors of consumed bytes are
/// closed.
pub(crate) async fn descriptors_of_shown_bytes_stay() -> io::Result<()> {
    let (mut one, mut other) = UnixOptions::new().descriptors(true).pair()?;
    let null = || std::fs::File::open("/dev/null").map(OwnedFd::from);
    for text in ["ab", "cd"] {
        one.send_with_descriptors(text, vec![null()?]).await?;
        one.drain().await?;
    }
    assert_eq!(other.fill_buf().await?, b"ab");
    assert_eq!(other.fill_at_least(4).await?, b"abcd");
    other.consume(1);
    let (bytes, descriptors) =
        other.recv_with_descriptors().await?.expect("the stream ended too early");
    assert_eq!((&*bytes, descriptors.len()), (&b"bcd"[..], 2));
    for text in ["ef", "gh"] {
        one.send_with_descriptors(text, vec![null()?]).await?;
        one.drain().await?;
    }
    assert_eq!(other.fill_buf().await?, b"ef");
    other.consume(2);
    let (bytes, descriptors) =
        other.recv_with_descriptors().await?.expect("the stream ended too early");
    assert_eq!((&*bytes, descriptors.len()), (&b"gh"[..], 1));
    Ok(())
}

pub(crate) async fn descriptors_stay_with_partly_read_bytes() -> io::Result<()> {
    let (mut one, mut other) = UnixOptions::new().descriptors(true).pair()?;
    let null = std::fs::File::open("/dev/null")?;
    one.send_with_descriptors("abc", vec![null.into()]).await?;
    other.readable().await?;
    let mut bytes = [0; 1];
    assert_eq!((other.try_read(&mut bytes)?, bytes), (1, *b"a"));
    let (bytes, descriptors) =
        other.recv_with_descriptors().await?.expect("the stream ended too early");
    assert_eq!((&*bytes, descriptors.len()), (&b"bc"[..], 1));
    Ok(())
}

/// Dropping a peek that waits changes nothing: each message arrives with its own descriptors, or is
/// taken without them.
pub(crate) async fn descriptors_stay_with_their_bytes_if_a_peek_is_dropped() -> io::Result<()> {
    let (mut one, mut other) = UnixOptions::new().descriptors(true).pair()?;
    let (mut reader, writer) = std::io::pipe()?;
    one.send_with_descriptors("taken", vec![writer.into()]).await?;
    assert_eq!(other.fill_buf().await?, b"taken");
    assert!(touch(other.fill_at_least(100)).is_none());
    assert_eq!(other.recv().await?.as_deref(), Some(&b"taken"[..]));
    let null = || std::fs::File::open("/dev/null").map(OwnedFd::from);
    one.send_with_descriptors("second", vec![null()?]).await?;
    let (bytes, descriptors) =
        other.recv_with_descriptors().await?.expect("the stream ended too early");
    assert_eq!((&*bytes, descriptors.len()), (&b"second"[..], 1));
    assert_eq!(reader.read(&mut [0])?, 0, "the first message's descriptor was closed");

    one.send_with_descriptors("third", vec![null()?, null()?]).await?;
    assert_eq!(other.fill_buf().await?, b"third");
    let mut waiting = Box::pin(other.fill_at_least(100));
    assert!(touch(&mut waiting).is_none());
    one.send_with_descriptors("fourth", vec![null()?]).await?;
    one.drain().await?;
    for _ in 0..10 {
        yield_now().await; // The fourth message arrives, but the peek does not gather it.
    }
    drop(waiting);
    for (wanted, count) in [(&b"third"[..], 2), (b"fourth", 1)] {
        let (bytes, descriptors) =
            other.recv_with_descriptors().await?.expect("the stream ended too early");
        assert_eq!((&*bytes, descriptors.len()), (wanted, count));
    }
    Ok(())
}

pub(crate) async fn a_copy_begins_with_shown_bytes() -> io::Result<()> {
    let (mut client, mut from) = pair().await?;
    let (mut to, mut reader) = UnixStream::pair()?;
    client.send("head and body").await?;
    client.shutdown().await?;
    assert_eq!(from.fill_at_least(13).await?, b"head and body");
    from.consume(9);
    assert_eq!(annulus::io::copy(&mut from, &mut to).await?, 4);
    drop(to);
    assert_eq!(reader.fill_at_least(5).await?, b"body");
    Ok(())
}
