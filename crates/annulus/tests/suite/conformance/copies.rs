//! Copies between streams.

use crate::common::{pair, pattern, receive};
use annulus::io::{AsyncSend, CopyError, Direction, copy, copy_at_most, copy_bidirectional};
use annulus::net::TcpStream;
use annulus::spawn;
use annulus::task::{JoinHandle, yield_now};
use annulus::time::timeout;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A proxy's two streams, and the client's and the server's stream to it.
async fn proxied() -> io::Result<((TcpStream, TcpStream), (TcpStream, TcpStream))> {
    let ((client, near), (far, server)) = (pair().await?, pair().await?);
    Ok(((client, server), (near, far)))
}

/// Holds back accepted bytes until it is flushed, as a buffered writer does.
struct Gathers<'a> {
    held: Vec<u8>,
    to: &'a mut TcpStream,
}

impl AsyncSend for Gathers<'_> {
    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let count = ready!(self.to.poll_write(cx, &self.held))?;
            self.held.drain(..count);
        }
        self.to.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.to.poll_shutdown(cx)
    }
}

/// Bytes that a sink holds back are sent while the source is quiet, since the source's peer may
/// send more only once they have arrived.
pub(crate) async fn a_quiet_source_does_not_hold_back_copied_bytes() -> io::Result<()> {
    let ((mut client, mut server), (mut near, mut far)) = proxied().await?;
    let copied = spawn(async move {
        let mut to = Gathers { held: Vec::new(), to: &mut far };
        copy(&mut near, &mut to).await
    });
    for ping in ["ping", "once more"] {
        client.send(ping).await?;
        assert_eq!(receive(&mut server, ping.len()).await?, ping.as_bytes());
    }
    client.shutdown().await?;
    assert_eq!(copied.await.expect("the task panicked")?, 13);
    Ok(())
}

/// The runtime assumes that a small send is complete without waiting for a completion, and no other
/// event arrives. Bytes that a copy queues after it must still be sent, whether the copy's task or
/// the runtime queues them.
pub(crate) async fn bytes_copied_after_a_small_send_leave_without_further_events() -> io::Result<()>
{
    let ((mut client, mut server), (mut near, mut far)) = proxied().await?;
    let waits = spawn(async move {
        let first = receive(&mut server, 2).await?;
        io::Result::Ok((first, receive(&mut server, 1).await?, server))
    });
    client.send("b").await?;
    // The copy's first bytes have arrived and the server's receive is armed, so none of its events
    // wakes the loop.
    near.readable().await?;
    let copied = spawn(async move {
        far.write(b"a").await?;
        copy(&mut near, &mut far).await
    });
    yield_now().await;
    yield_now().await;
    client.send("c").await?;
    let (first, second, _server) = waits.await.expect("the task panicked")?;
    assert_eq!((&*first, &*second), (&b"ab"[..], &b"c"[..]));
    client.shutdown().await?;
    assert_eq!(copied.await.expect("the task panicked")?, 2);
    Ok(())
}

/// A copy that waits uses no budget of its task, and one with a busy direction still serves the
/// other direction.
pub(crate) async fn more_copies_than_the_task_budget_all_progress() -> io::Result<()> {
    const COPIES: usize = 6;
    let (mut ends, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..COPIES {
        let (end, (mut near, mut far)) = proxied().await?;
        ends.push(end);
        copies.push(Box::pin(async move { copy_bidirectional(&mut near, &mut far).await }));
    }
    let all = spawn(async move {
        let mut left: Vec<_> = copies.into_iter().map(Some).collect();
        poll_fn(|cx| {
            for slot in &mut left {
                if slot.as_mut().is_some_and(|copy| copy.as_mut().poll(cx).is_ready()) {
                    *slot = None;
                }
            }
            if left.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    for (client, server) in &mut ends {
        client.send("up").await?;
        assert_eq!(receive(server, 2).await?, b"up");
        server.send("down").await?;
        assert_eq!(receive(client, 4).await?, b"down");
    }
    for (client, server) in ends {
        drop((client, server));
    }
    all.await.expect("the task panicked");
    Ok(())
}

pub(crate) async fn a_direction_that_was_shut_down_does_not_end_the_other() -> io::Result<()> {
    for reads in [false, true] {
        let ((mut client, mut server), (mut near, mut far)) = proxied().await?;
        near.shutdown().await?;
        let copied = spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        client.send("an upload").await?;
        assert_eq!(receive(&mut server, 9).await?, b"an upload");
        client.send(" goes on").await?;
        client.shutdown().await?;
        assert_eq!(receive(&mut server, 9).await?, b" goes on");
        if reads {
            server.shutdown().await?;
            assert_eq!(copied.await.expect("the task panicked")?, (17, 0));
        } else {
            server.send("a reply that has no way").await?;
            let error = copied.await.expect("the task panicked").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    }
    Ok(())
}

/// Copies both ways until both have ended.
fn proxy(mut near: TcpStream, mut far: TcpStream) -> JoinHandle<io::Result<(u64, u64)>> {
    spawn(async move { copy_bidirectional(&mut near, &mut far).await })
}

/// Sends a whole text and the end while receiving up to the end.
async fn exchange(stream: TcpStream, text: Vec<u8>) -> io::Result<Vec<u8>> {
    let (mut receiving, mut sending) = stream.into_split();
    let sends = spawn(async move {
        for piece in text.chunks(7919) {
            sending.send(piece.to_vec()).await?;
        }
        sending.shutdown().await
    });
    let mut all = Vec::new();
    copy(&mut receiving, &mut all).await?;
    sends.await.expect("the task panicked")?;
    Ok(all)
}

pub(crate) async fn halves_are_copied() -> io::Result<()> {
    let ((client, mut server), (near, far)) = proxied().await?;
    let (mut from, _to_client) = near.into_split();
    let (_from_server, mut to) = far.into_split();
    let text = pattern(200_000);
    let sent = spawn(exchange(client, text.clone()));
    let copied = spawn(async move { copy(&mut from, &mut to).await });
    assert!(receive(&mut server, text.len()).await? == text);
    assert_eq!(copied.await.expect("the task panicked")?, text.len() as u64);
    assert!(server.recv().await?.is_none(), "the dropped half did not end the stream");
    drop((_to_client, _from_server));
    assert!(sent.await.expect("the task panicked")?.is_empty());
    Ok(())
}

pub(crate) async fn a_limit_leaves_the_rest() -> io::Result<()> {
    let ((client, mut server), (mut near, mut far)) = proxied().await?;
    let text = pattern(50_000);
    let sent = spawn(exchange(client, text.clone()));
    let mut done = 0;
    for part in [1, 0, 9999, 20_000] {
        assert_eq!(copy_at_most(&mut near, &mut far, part).await?, part);
        done += part as usize;
        assert!(receive(&mut server, part as usize).await? == text[done - part as usize..done]);
    }
    let lease = near.recv().await?.expect("the stream ended too early");
    assert!(*lease == text[done..done + lease.len()]);
    done += lease.len();
    let left = (text.len() - done) as u64;
    assert_eq!(copy_at_most(&mut near, &mut far, left + 1).await?, left);
    drop(far);
    assert!(receive(&mut server, usize::MAX).await? == text[done..]);
    drop(near);
    assert!(sent.await.expect("the task panicked")?.is_empty());
    Ok(())
}

pub(crate) async fn each_end_is_passed_on_separately() -> io::Result<()> {
    let ((mut client, mut server), (near, far)) = proxied().await?;
    let copied = proxy(near, far);
    client.send("a request").await?;
    client.shutdown().await?;
    assert_eq!(receive(&mut server, 100).await?, b"a request");
    assert!(server.recv().await?.is_none());
    server.send("an answer behind the end").await?;
    assert_eq!(receive(&mut client, 24).await?, b"an answer behind the end");
    assert!(!copied.is_finished());
    drop(server);
    assert!(client.recv().await?.is_none());
    assert_eq!(copied.await.expect("the task panicked")?, (9, 24));
    Ok(())
}

pub(crate) async fn large_transfers_go_both_ways() -> io::Result<()> {
    let ((client, server), (near, far)) = proxied().await?;
    let copied = proxy(near, far);
    let (up, down) = (pattern(300_000), pattern(500_000));
    let sent = spawn(exchange(client, up.clone()));
    assert!(exchange(server, down.clone()).await? == up);
    assert!(sent.await.expect("the task panicked")? == down);
    assert_eq!(copied.await.expect("the task panicked")?, (300_000, 500_000));
    Ok(())
}

pub(crate) async fn an_error_contains_its_direction() -> io::Result<()> {
    for expected in [Direction::AToB, Direction::BToA] {
        let ((mut client, mut server), (near, far)) = proxied().await?;
        let copied = match expected {
            Direction::AToB => proxy(near, far),
            Direction::BToA => proxy(far, near),
        };
        client.send("some").await?;
        assert_eq!(receive(&mut server, 4).await?, b"some");
        client.abort();
        let error = copied.await.expect("the task panicked").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        let copy_error = error.get_ref().and_then(|inner| inner.downcast_ref::<CopyError>());
        let copy_error = copy_error.expect("not a CopyError");
        assert_eq!(copy_error.direction(), Some(expected));
        let (there, back) = copy_error.copied();
        assert_eq!((there.max(back), there.min(back)), (4, 0));
        assert!(error.to_string().contains("stream, after 4 bytes (0 the other way): "), "{error}");
    }
    Ok(())
}

pub(crate) async fn dropped_copies_lose_nothing() -> io::Result<()> {
    let ((client, server), (mut near, mut far)) = proxied().await?;
    let copied = spawn(async move {
        let mut patience = Duration::ZERO;
        loop {
            patience += Duration::from_micros(300);
            if let Ok(done) = timeout(patience, copy_bidirectional(&mut near, &mut far)).await {
                return done.map(drop);
            }
        }
    });
    let (up, down) = (pattern(200_000), pattern(100_000));
    let sent = spawn(exchange(client, up.clone()));
    assert!(exchange(server, down.clone()).await? == up);
    assert!(sent.await.expect("the task panicked")? == down);
    copied.await.expect("the task panicked")
}
