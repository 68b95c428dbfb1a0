//! Readiness of this crate's sockets and pipes, and calls that do not wait.

use super::unix::TestPath;
use crate::common::{pair, pattern, touch};
use annulus::io::Interest;
use annulus::net::{TcpStream, Transmit, UdpSocket, UnixDatagram, UnixStream};
use annulus::task::yield_now;
use annulus::time::sleep;
use annulus::{pipe, spawn};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn would_block<T>(outcome: io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Sends all of `bytes` and reads as many bytes, by readiness alone, in one task.
macro_rules! exchange {
    ($stream:ident, $bytes:ident) => {{
        let (mut sent, mut got) = (0, Vec::new());
        let mut memory = [0; 1000];
        while sent < $bytes.len() || got.len() < $bytes.len() {
            tokio::select! {
                readable = $stream.readable(), if got.len() < $bytes.len() => {
                    readable?;
                    let count = $stream.try_read(&mut memory)?;
                    assert!(count > 0, "a readable stream returned no bytes");
                    got.extend_from_slice(&memory[..count]);
                }
                writable = $stream.writable(), if sent < $bytes.len() => {
                    writable?;
                    let most = $bytes.len().min(sent + 3000);
                    let count = $stream.try_write(&$bytes[sent..most])?;
                    assert!(count > 0);
                    sent += count;
                }
                // Drops the waits from time to time.
                () = yield_now() => {}
            }
        }
        got
    }};
}

async fn exchange_tcp(mut stream: TcpStream, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    Ok(exchange!(stream, bytes))
}

async fn exchange_unix(mut stream: UnixStream, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    Ok(exchange!(stream, bytes))
}

pub(crate) async fn bytes_go_both_ways_by_readiness() -> io::Result<()> {
    let (one, other) = pair().await?;
    let there = pattern(10_000);
    let back: Vec<_> = there.iter().rev().copied().collect();
    let other = spawn(exchange_tcp(other, back.clone()));
    assert_eq!(exchange_tcp(one, there.clone()).await?, back);
    assert_eq!(other.await.expect("the task panicked")?, there);
    let (one, other) = UnixStream::pair()?;
    let other = spawn(exchange_unix(other, back.clone()));
    assert_eq!(exchange_unix(one, there.clone()).await?, back);
    assert_eq!(other.await.expect("the task panicked")?, there);
    Ok(())
}

pub(crate) async fn an_end_and_a_reset_are_ready() -> io::Result<()> {
    let (mut one, mut other) = pair().await?;
    assert!(would_block(one.try_read(&mut [0; 9])));
    other.send("last").await?;
    other.shutdown().await?;
    one.readable().await?;
    // Peeked bytes still count as ready.
    assert_eq!(&one.fill_at_least(4).await?[..4], b"last");
    one.readable().await?;
    let mut memory = [0; 3];
    assert_eq!((one.try_read(&mut memory)?, &memory), (3, b"las"));
    one.readable().await?;
    assert_eq!((one.try_read(&mut [])?, one.try_read(&mut memory)?, memory[0]), (0, 1, b't'));
    for _ in 0..3 {
        one.readable().await?;
        assert_eq!(one.try_read(&mut memory)?, 0);
    }
    one.abort();
    other.readable().await?;
    let error = other.try_read(&mut memory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    while other.try_write(b"refused").is_ok() {
        yield_now().await;
    }
    assert!(!would_block(other.try_write(b"refused")));
    assert!(other.writable().await.is_err());
    Ok(())
}

pub(crate) async fn a_full_queue_is_not_writable() -> io::Result<()> {
    let (mut one, mut other) = pair().await?;
    let chunk = [7; 8192];
    let mut accepted = 0;
    // Write until neither the stream nor the kernel has space left.
    while ready_soon(one.writable()).await {
        while let Ok(count) = one.try_write(&chunk) {
            accepted += count;
        }
        assert!(would_block(one.try_write(&chunk)));
        assert!(touch(one.writable()).is_none(), "the stream is writable without space");
    }
    let mut received = std::pin::pin!(async {
        let mut received = 0;
        while let Some(lease) = other.recv().await? {
            received += lease.len();
        }
        io::Result::Ok(received)
    });
    tokio::select! {
        biased;
        writable = one.writable() => writable?,
        _ = &mut received => panic!("the stream has not ended"),
    }
    accepted += one.try_write(b"x")?;
    let ((), received) = tokio::try_join!(one.shutdown(), received)?;
    assert_eq!(received, accepted);
    Ok(())
}

async fn ready_soon(wait: impl Future<Output = io::Result<()>>) -> bool {
    tokio::select! {
        biased;
        ready = wait => ready.is_ok(),
        () = sleep(Duration::from_millis(20)) => false,
    }
}

pub(crate) async fn trying_leaves_a_waiting_task_its_wake() -> io::Result<()> {
    let (mut one, mut other) = pair().await?;
    let mut tried = false;
    one.write_all(b"first").await?;
    let receiver = spawn(async move { other.recv_exact(6).await });
    poll_fn(|cx| match one.poll_drain(cx) {
        Poll::Pending if !tried => {
            tried = true;
            assert_eq!(one.try_write(b"x").expect("no space"), 1);
            Poll::Pending
        }
        polled => polled,
    })
    .await?;
    assert_eq!(&*receiver.await.expect("the task panicked")?, b"firstx");
    Ok(())
}

pub(crate) async fn either_direction_of_a_stream_is_awaited() -> io::Result<()> {
    let both = Interest::READABLE | Interest::WRITABLE;
    let (mut one, mut other) = pair().await?;
    assert_eq!(one.ready(both).await?, Interest::WRITABLE);
    assert!(touch(one.ready(Interest::READABLE)).is_none());
    other.send("bytes").await?;
    assert_eq!(one.ready(Interest::READABLE).await?, Interest::READABLE);
    assert_eq!(one.ready(both).await?, both);
    // Fill the queue, so that only one direction is ready.
    let chunk = [7; 8192];
    while ready_soon(one.writable()).await {
        while one.try_write(&chunk).is_ok() {}
    }
    assert_eq!(one.ready(both).await?, Interest::READABLE);
    assert_eq!(one.try_read(&mut [0; 9])?, 5);
    assert!(touch(one.ready(both)).is_none());
    let (mut one, other) = UnixStream::pair()?;
    assert_eq!(one.ready(both).await?, Interest::WRITABLE);
    drop(other);
    assert!(one.ready(Interest::READABLE).await?.is_readable());
    assert_eq!(one.try_read(&mut [0; 9])?, 0);
    Ok(())
}

pub(crate) async fn several_pieces_are_written_and_read_at_once() -> io::Result<()> {
    let (mut one, mut other) = pair().await?;
    let (mut first, mut second) = ([0; 4], [0; 100]);
    let mut memory = [&mut first[..], &mut [], &mut second[..]].map(IoSliceMut::new);
    assert!(would_block(one.try_read_vectored(&mut memory)));
    assert_eq!(one.try_read_vectored(&mut [])?, 0);
    for part in ["one ", "two ", "three"] {
        let slices = [&b""[..], part.as_bytes(), b"!"].map(IoSlice::new);
        assert_eq!(other.try_write_vectored(&slices)?, part.len() + 1);
        other.drain().await?;
    }
    assert_eq!(one.fill_at_least(16).await?.len(), 16);
    assert_eq!(one.try_read_vectored(&mut memory)?, 16);
    assert_eq!((&*memory[0], &memory[2][..12]), (&b"one "[..], &b"!two !three!"[..]));
    // Bytes that arrive after others have been shown are in another lease, but are read with them.
    let mut pause = Duration::ZERO;
    loop {
        other.write_all(b"shown").await?;
        assert_eq!(one.fill_at_least(5).await?, b"shown");
        other.write_all(b"not").await?;
        sleep(pause).await;
        let count = one.try_read_vectored(&mut memory)?;
        if count == 8 {
            break;
        }
        assert!(pause < Duration::from_secs(2), "only one lease is read");
        pause = pause * 2 + Duration::from_micros(100);
        one.recv_exact(8 - count).await?;
    }
    assert_eq!((&*memory[0], &memory[2][..4]), (&b"show"[..], &b"nnot"[..]));
    other.shutdown().await?;
    one.readable().await?;
    assert_eq!(one.try_read_vectored(&mut [IoSliceMut::new(&mut first)])?, 0);
    assert!(other.try_write_vectored(&[IoSlice::new(b"x")]).is_err());
    Ok(())
}

pub(crate) async fn either_direction_of_a_datagram_socket_is_awaited() -> io::Result<()> {
    let both = Interest::READABLE | Interest::WRITABLE;
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    assert_eq!(one.ready(both).await?, Interest::WRITABLE);
    assert!(touch(one.ready(Interest::READABLE)).is_none());
    other.send_to("bytes", one.local_addr()?).await?;
    assert_eq!(one.ready(Interest::READABLE).await?, Interest::READABLE);
    assert_eq!(one.ready(both).await?, both);
    let (one, other) = UnixDatagram::pair()?;
    assert_eq!(one.ready(both).await?, Interest::WRITABLE);
    other.send("bytes").await?;
    assert_eq!(one.ready(Interest::READABLE).await?, Interest::READABLE);
    Ok(())
}

/// Polls a wait once, drops it, and returns how many wakers of its task are left.
async fn wakers_left<T>(wait: impl Future<Output = T>) -> usize {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let task = Arc::new(Task);
    let waker = Waker::from(task.clone());
    let mut wait = Box::pin(wait);
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop((wait, waker));
    yield_now().await;
    Arc::strong_count(&task) - 1
}

pub(crate) async fn a_dropped_wait_for_datagrams_keeps_no_waker() -> io::Result<()> {
    let both = Interest::READABLE | Interest::WRITABLE;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    assert_eq!(wakers_left(udp.readable()).await, 0);
    assert_eq!(wakers_left(udp.ready(Interest::READABLE)).await, 0);
    assert_eq!(wakers_left(udp.peek_from(&mut [0; 9])).await, 0);
    let (full, peer) = UnixDatagram::pair()?;
    while !would_block(full.try_send(&[0; 4096])) {
        yield_now().await;
    }
    assert_eq!(wakers_left(full.readable()).await, 0);
    assert_eq!(wakers_left(full.writable()).await, 0);
    assert_eq!(wakers_left(full.ready(both)).await, 0);
    // The other waits are still woken, and one that takes nothing wakes the next.
    let (mut early, mut late) = (Box::pin(full.readable()), Box::pin(full.readable()));
    assert!(touch(early.as_mut()).is_none() && touch(late.as_mut()).is_none());
    drop(early);
    peer.try_send(b"one")?;
    tokio::try_join!(full.readable(), late)?;
    assert_eq!(&*full.recv().await?, b"one");
    Ok(())
}

pub(crate) async fn datagrams_are_taken_by_readiness() -> io::Result<()> {
    const COUNT: usize = 200;
    let (server, client) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    assert!(would_block(server.try_recv_from()));
    let (to, from) = (server.local_addr()?, client.local_addr()?);
    let server = Rc::new(server);
    let wait = || {
        let server = server.clone();
        spawn(async move { server.readable().await })
    };
    let early = [wait(), wait(), wait()];
    let mut seen = [false; COUNT];
    let mut sent = 0;
    while seen.contains(&false) {
        // Sends twenty at a time, so that no queue overflows.
        for n in sent..COUNT.min(sent + 20) {
            client.writable().await?;
            client.try_send(&n.to_ne_bytes(), &Transmit::to(to))?;
        }
        sent = COUNT.min(sent + 20);
        while seen[..sent].contains(&false) {
            server.readable().await?;
            let (lease, source) = server.try_recv_from()?;
            assert_eq!(source, from);
            let n = usize::from_ne_bytes(lease[..].try_into().expect("not eight bytes"));
            assert!(!std::mem::replace(&mut seen[n], true), "datagram {n} arrived twice");
        }
    }
    // A datagram that nobody takes wakes all waiting tasks.
    let late = [wait(), wait(), wait()];
    client.try_send(b"stays", &Transmit::to(to))?;
    for task in early.into_iter().chain(late) {
        task.await.expect("the task panicked")?;
    }
    assert_eq!(&*server.try_recv_from()?.0, b"stays");
    assert!(would_block(server.try_recv_from()));
    Ok(())
}

pub(crate) async fn unix_datagrams_are_taken_by_readiness() -> io::Result<()> {
    const COUNT: usize = 200;
    let path = TestPath::new();
    let (server, client) = (UnixDatagram::bind(&path)?, UnixDatagram::unbound()?);
    assert!(would_block(server.try_recv_from()));
    let mut sent = 0;
    for n in 0..COUNT {
        while sent < COUNT && client.try_send_to(&sent.to_ne_bytes(), &path).is_ok() {
            sent += 1;
        }
        server.readable().await?;
        let (lease, source) = server.try_recv_from()?;
        assert!(source.is_unnamed());
        assert_eq!(lease[..], n.to_ne_bytes(), "a datagram was lost or reordered");
    }
    // Connected sockets also send and receive without waiting.
    let (one, other) = UnixDatagram::pair()?;
    assert!(would_block(other.try_recv_from()));
    one.writable().await?;
    one.try_send(b"to the peer")?;
    other.readable().await?;
    assert_eq!(&*other.try_recv_from()?.0, b"to the peer");
    assert!(would_block(other.try_recv_from()));
    Ok(())
}

pub(crate) async fn pipes_are_read_and_written_by_readiness() -> io::Result<()> {
    let (mut sender, mut receiver) = pipe::pipe()?;
    assert!(would_block(receiver.try_read(&mut [0; 9])));
    let bytes = pattern(300_000);
    let sent = bytes.clone();
    let sending = spawn(async move {
        let mut left = &sent[..];
        while !left.is_empty() {
            sender.writable().await?;
            left = &left[sender.try_write(left)?..];
        }
        sender.shutdown().await
    });
    let (mut got, mut memory) = (Vec::new(), [0; 777]);
    loop {
        receiver.readable().await?;
        match receiver.try_read(&mut memory)? {
            0 => break,
            count => got.extend_from_slice(&memory[..count]),
        }
    }
    sending.await.expect("the task panicked")?;
    assert!(got == bytes, "{} bytes", got.len());
    Ok(())
}
