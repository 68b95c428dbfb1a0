//! Copies between streams.

use crate::common::{pair, pattern, receive};
use annulus::io::{CopyError, Direction, copy, copy_at_most, copy_bidirectional};
use annulus::net::TcpStream;
use annulus::time::timeout;
use annulus::{JoinHandle, spawn};
use std::io;
use std::time::Duration;

/// A stream to each of the two ends of a proxy, and the proxy's streams.
async fn proxied() -> io::Result<((TcpStream, TcpStream), (TcpStream, TcpStream))> {
    let ((client, near), (far, server)) = (pair().await?, pair().await?);
    Ok(((client, server), (near, far)))
}

/// Copies both ways until both have ended.
fn proxy(mut near: TcpStream, mut far: TcpStream) -> JoinHandle<io::Result<(u64, u64)>> {
    spawn(async move { copy_bidirectional(&mut near, &mut far).await })
}

/// Sends all of a text and the end, while it receives up to the end.
async fn exchange(stream: TcpStream, text: Vec<u8>) -> io::Result<Vec<u8>> {
    let (mut receiving, mut sending) = stream.split();
    let sends = spawn(async move {
        for piece in text.chunks(7919) {
            sending.send(piece.to_vec()).await?;
        }
        sending.shutdown().await
    });
    let mut all = Vec::new();
    copy(&mut receiving, &mut all).await?;
    sends.await.expect("no panic")?;
    Ok(all)
}

pub(crate) async fn halves_are_copied() -> io::Result<()> {
    let ((client, mut server), (near, far)) = proxied().await?;
    let (mut from, _to_client) = near.split();
    let (_from_server, mut to) = far.split();
    let text = pattern(200_000);
    let sent = spawn(exchange(client, text.clone()));
    let copied = spawn(async move { copy(&mut from, &mut to).await });
    assert!(receive(&mut server, text.len()).await? == text);
    assert_eq!(copied.await.expect("no panic")?, text.len() as u64);
    assert!(server.recv().await?.is_none(), "the drop of the half ends it");
    drop((_to_client, _from_server));
    assert!(sent.await.expect("no panic")?.is_empty());
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
    let lease = near.recv().await?.expect("the rest");
    assert!(*lease == text[done..done + lease.len()]);
    done += lease.len();
    let left = (text.len() - done) as u64;
    assert_eq!(copy_at_most(&mut near, &mut far, left + 1).await?, left);
    drop(far);
    assert!(receive(&mut server, usize::MAX).await? == text[done..]);
    drop(near);
    assert!(sent.await.expect("no panic")?.is_empty());
    Ok(())
}

pub(crate) async fn each_end_is_passed_on_alone() -> io::Result<()> {
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
    assert_eq!(copied.await.expect("no panic")?, (9, 24));
    Ok(())
}

pub(crate) async fn much_goes_both_ways() -> io::Result<()> {
    let ((client, server), (near, far)) = proxied().await?;
    let copied = proxy(near, far);
    let (up, down) = (pattern(300_000), pattern(500_000));
    let sent = spawn(exchange(client, up.clone()));
    assert!(exchange(server, down.clone()).await? == up);
    assert!(sent.await.expect("no panic")? == down);
    assert_eq!(copied.await.expect("no panic")?, (300_000, 500_000));
    Ok(())
}

pub(crate) async fn an_error_names_its_direction() -> io::Result<()> {
    for expected in [Direction::AToB, Direction::BToA] {
        let ((mut client, mut server), (near, far)) = proxied().await?;
        let copied = match expected {
            Direction::AToB => proxy(near, far),
            Direction::BToA => proxy(far, near),
        };
        client.send("some").await?;
        assert_eq!(receive(&mut server, 4).await?, b"some");
        client.abort();
        let error = copied.await.expect("no panic").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        let told = error.get_ref().and_then(|inner| inner.downcast_ref::<CopyError>());
        let told = told.expect("an error of a copy");
        assert_eq!(told.direction(), Some(expected));
        let (there, back) = told.copied();
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
    assert!(sent.await.expect("no panic")? == down);
    copied.await.expect("no panic")
}
