//! Copies between two sockets: the runtime passes the bytes on while the task sleeps.

use crate::common::{pair, pattern, receive, touch};
use annulus::io::{copy, copy_at_most, copy_bidirectional};
use annulus::net::TcpStream;
use annulus::spawn;
use annulus::task::consume_budget;
use annulus::time::sleep;
use futures_util::future::try_join;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// Messages per test.
const MESSAGES: u64 = 100;
/// Extra polls that a copy may take: its first, its last, and those after a receive that found no
/// buffer.
const FEW: u64 = 10;

/// Sends messages one by one and waits for each answer.
async fn talk(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    for number in 0..MESSAGES {
        client.send(number.to_le_bytes().to_vec()).await?;
        assert_eq!(receive(server, 8).await?, number.to_le_bytes());
        server.send(vec![number as u8]).await?;
        assert_eq!(receive(client, 1).await?, [number as u8]);
    }
    Ok(())
}

pub(crate) async fn messages_pass_without_the_task() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let (stop, stopped) = oneshot::channel::<()>();
    let copied = spawn(async move {
        let (mut copy, mut stopped, mut polls) =
            (copy_bidirectional(&mut near, &mut far), pin!(stopped), 0);
        let counted = poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            polls += 1;
            Pin::new(&mut copy).poll(cx).map_ok(drop)
        });
        counted.await.map(|()| (polls, copy.copied()))
    });
    talk(&mut client, &mut server).await?;
    stop.send(()).expect("the copy has ended");
    let (polls, copied) = copied.await.expect("the task panicked")?;
    assert!(polls < FEW, "{polls} polls for {MESSAGES} messages");
    assert_eq!(copied, (8 * MESSAGES, MESSAGES));
    Ok(())
}

pub(crate) async fn a_copy_of_halves_passes_messages_without_the_task() -> io::Result<()> {
    let (mut client, near) = pair().await?;
    let echo = spawn(async move {
        let (mut from, mut to) = near.into_split();
        let (mut copy, mut polls) = (pin!(copy(&mut from, &mut to)), 0);
        let copied = poll_fn(|cx| {
            polls += 1;
            copy.as_mut().poll(cx)
        });
        copied.await.map(|copied| (copied, polls))
    });
    for number in 0..MESSAGES {
        client.send(number.to_le_bytes().to_vec()).await?;
        assert_eq!(receive(&mut client, 8).await?, number.to_le_bytes());
    }
    client.shutdown().await?;
    assert!(client.recv().await?.is_none());
    let (copied, polls) = echo.await.expect("the task panicked")?;
    assert_eq!(copied, 8 * MESSAGES);
    assert!(polls < FEW, "{polls} polls for {MESSAGES} messages");
    Ok(())
}

pub(crate) async fn bytes_after_a_drop_stay_with_their_stream() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    for number in 0..20u8 {
        assert!(
            touch(copy_bidirectional(&mut near, &mut far)).is_none(),
            "the copy ended without bytes"
        );
        client.send(vec![number]).await?;
        assert_eq!(receive(&mut near, 1).await?, [number]);
    }
    near.send("to the client").await?;
    assert_eq!(receive(&mut client, 13).await?, b"to the client");
    far.send("to the server").await?;
    assert_eq!(receive(&mut server, 13).await?, b"to the server");
    assert!(touch(server.recv()).is_none(), "bytes were copied");
    Ok(())
}

pub(crate) async fn a_forgotten_copy_leaves_bytes_to_a_receive() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let mut copy = copy_bidirectional(&mut near, &mut far);
    assert!(touch(&mut copy).is_none());
    std::mem::forget(copy);
    assert!(touch(near.recv()).is_none());
    client.send("asked for").await?;
    assert_eq!(receive(&mut near, 9).await?, b"asked for");
    assert!(touch(server.recv()).is_none(), "bytes were copied");

    let mut copy = copy_bidirectional(&mut near, &mut far);
    assert!(touch(&mut copy).is_none());
    std::mem::forget(copy);
    drop(far);
    assert!(server.recv().await?.is_none());
    client.send("to a target that is gone").await?;
    client.shutdown().await?;
    assert_eq!(receive(&mut near, 99).await?, b"to a target that is gone");
    Ok(())
}

pub(crate) async fn a_target_that_replaces_another_receives_nothing() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let mut copy = copy_bidirectional(&mut near, &mut far);
    assert!(touch(&mut copy).is_none());
    std::mem::forget(copy);
    drop(far);
    assert!(server.recv().await?.is_none());
    drop(server);
    let mut others = Vec::new();
    for _ in 0..8 {
        others.push(pair().await?);
    }
    client.send("to none of them").await?;
    for (one, other) in &mut others {
        one.send("mine").await?;
        assert_eq!(receive(other, 4).await?, b"mine");
        other.send("back").await?;
        assert_eq!(receive(one, 4).await?, b"back");
    }
    assert_eq!(receive(&mut near, 15).await?, b"to none of them");
    Ok(())
}

/// Uses up the task's budget for this poll, and then continues within the same poll.
async fn use_up_the_budget() {
    poll_fn(|cx| {
        while pin!(consume_budget()).poll(cx).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

pub(crate) async fn shown_bytes_are_not_overtaken() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    client.send("first, ").await?;
    assert_eq!(near.fill_at_least(7).await?, b"first, ");
    let copied = async {
        // The copy has to wait for budget, not for bytes.
        use_up_the_budget().await;
        copy(&mut near, &mut far).await
    };
    let sent = async {
        client.send("then second").await?;
        client.shutdown().await
    };
    assert_eq!(try_join(copied, sent).await?.0, 18);
    assert_eq!(receive(&mut server, 18).await?, b"first, then second");
    Ok(())
}

pub(crate) async fn a_limit_ends_a_copy_that_waits() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let copied = spawn(async move {
        for limit in [5, 4, 0] {
            assert_eq!(copy_at_most(&mut near, &mut far, limit).await?, limit);
        }
        io::Result::Ok((near, far))
    });
    for message in [b"ab", b"cd", b"ef", b"gh"] {
        client.send(&message[..]).await?;
        assert_eq!(receive(&mut server, 2).await?, message);
    }
    client.send("ij").await?;
    assert_eq!(receive(&mut server, 1).await?, b"i");
    let (mut near, _far) = copied.await.expect("the task panicked")?;
    assert_eq!(receive(&mut near, 1).await?, b"j");
    assert!(touch(server.recv()).is_none(), "bytes were copied");
    Ok(())
}

pub(crate) async fn a_limit_ends_one_direction() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let copied = spawn(async move {
        let copied = copy_bidirectional(&mut near, &mut far).limits(3, u64::MAX).await?;
        io::Result::Ok((copied, near))
    });
    client.send("ab").await?;
    assert_eq!(receive(&mut server, 2).await?, b"ab");
    client.send("cd").await?;
    assert_eq!(receive(&mut server, 2).await?, b"c", "not one more byte and then the end");
    for number in 0..MESSAGES {
        server.send(vec![number as u8]).await?;
        assert_eq!(receive(&mut client, 1).await?, [number as u8]);
    }
    server.shutdown().await?;
    assert!(client.recv().await?.is_none());
    let (copied, mut near) = copied.await.expect("the task panicked")?;
    assert_eq!(copied, (3, MESSAGES));
    assert_eq!(receive(&mut near, 1).await?, b"d");
    Ok(())
}

pub(crate) async fn a_lowered_limit_applies() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let mut copy = copy_bidirectional(&mut near, &mut far);
    let task = poll_fn(|cx| Poll::Ready(Pin::new(&mut copy).poll(cx).is_ready()));
    assert!(!task.await);
    let copied = copy.limits(2, 0);
    client.send("abcd").await?;
    server.send("efgh").await?;
    assert_eq!(copied.await?, (2, 0));
    assert_eq!(receive(&mut server, 4).await?, b"ab");
    assert!(client.recv().await?.is_none());
    assert_eq!(receive(&mut near, 2).await?, b"cd");
    assert_eq!(receive(&mut far, 4).await?, b"efgh");
    Ok(())
}

pub(crate) async fn a_copy_repeated_at_its_limit_continues_the_other_way() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    client.send("stays").await?;
    // The first copy passes on the end from `near` to `far` before it is dropped, since the limit
    // of that direction is 0.
    for message in [b"ab", b"cd", b"ef"] {
        let mut copy = copy_bidirectional(&mut near, &mut far).limits(0, u64::MAX);
        server.send(&message[..]).await?;
        let received = receive(&mut client, 2);
        let mut received = pin!(received);
        let received = poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut copy).poll(cx) {
                return Poll::Ready(Err(
                    ended.expect_err("the copy ended although the other direction continues")
                ));
            }
            received.as_mut().poll(cx)
        });
        assert_eq!(received.await?, message);
    }
    assert!(server.recv().await?.is_none(), "the end was not passed on");
    server.shutdown().await?;
    assert_eq!(copy_bidirectional(&mut near, &mut far).limits(0, u64::MAX).await?, (0, 0));
    assert!(client.recv().await?.is_none());
    assert_eq!(receive(&mut near, 5).await?, b"stays");
    Ok(())
}

pub(crate) async fn a_chain_passes_bytes_and_ends() -> io::Result<()> {
    let (mut client, mut last) = pair().await?;
    let mut proxies = Vec::new();
    for _ in 0..3 {
        let (mut near, (mut far, next)) = (last, pair().await?);
        proxies.push(spawn(async move { copy_bidirectional(&mut near, &mut far).await }));
        last = next;
    }
    talk(&mut client, &mut last).await?;
    let text = pattern(300_000);
    let expected = text.clone();
    let (from_client, mut to_proxy) = client.into_split();
    let sent = spawn(async move {
        to_proxy.send(text).await?;
        to_proxy.shutdown().await
    });
    assert!(receive(&mut last, expected.len()).await? == expected);
    assert!(last.recv().await?.is_none());
    sent.await.expect("the task panicked")?;
    // The other direction is open, and ends with an error. Each proxy passes it on as an end or as
    // an error of its own.
    drop(from_client);
    last.abort();
    for proxy in proxies {
        if let Ok(copied) = proxy.await.expect("the task panicked") {
            assert_eq!(copied, (8 * MESSAGES + 300_000, MESSAGES));
        }
    }
    Ok(())
}

pub(crate) async fn a_ring_of_copies_passes_a_message_around() -> io::Result<()> {
    let ((mut one, mut two), (mut three, mut four)) = (pair().await?, pair().await?);
    two.send("round").await?;
    // The two copies form a ring: bytes go from `one` to `three`, and from `four` to `two`, until a
    // limit is reached.
    let there = spawn(async move {
        let copied = copy_bidirectional(&mut one, &mut three).limits(5000, 0).await;
        // The last message comes round to `one`, perhaps in pieces. If `one` were closed, it would
        // refuse them.
        (copied, one, three)
    });
    let back = spawn(async move { copy_bidirectional(&mut four, &mut two).await });
    let (copied, _one, _three) = there.await.expect("the task panicked");
    assert_eq!(copied?, (5000, 0));
    assert_eq!(back.await.expect("the task panicked")?, (5000, 0));
    Ok(())
}

pub(crate) async fn a_target_that_does_not_read_stops_its_source() -> io::Result<()> {
    let ((client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let copied = spawn(async move { copy_bidirectional(&mut near, &mut far).await });
    let text = pattern(4 << 20);
    let (mut from_near, mut to_near) = client.into_split();
    let expected = text.clone();
    let sent = spawn(async move {
        for piece in text.chunks(50_000) {
            to_near.send(piece.to_vec()).await?;
        }
        to_near.shutdown().await
    });
    // Bytes in the other direction arrive while this direction is blocked.
    server.send("the other way").await?;
    assert_eq!(&*from_near.recv_exact(13).await?, b"the other way");
    sleep(Duration::from_millis(20)).await;
    assert!(receive(&mut server, expected.len()).await? == expected);
    sent.await.expect("the task panicked")?;
    server.shutdown().await?;
    assert!(from_near.recv().await?.is_none());
    assert_eq!(copied.await.expect("the task panicked")?, (expected.len() as u64, 13));
    Ok(())
}
