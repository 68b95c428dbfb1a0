//! Bytes arrive in order up to the end of the stream.

use crate::common::{echo, pair, pattern, receive};
use crate::conformance::mode::Mode;
use annulus::net::{TcpStream, UnixStream};
use annulus::spawn;
use annulus::stats::Counters;
use std::io::{self, ErrorKind};

pub(crate) async fn the_client_half_closes_and_still_receives() -> io::Result<()> {
    let (client, server) = pair().await?;
    half_close(client, server).await
}

pub(crate) async fn the_server_half_closes_and_still_receives() -> io::Result<()> {
    let (client, server) = pair().await?;
    half_close(server, client).await
}

/// The first stream shuts down its sending side. The second receives the end, answers, and shuts
/// down too.
async fn half_close(mut first: TcpStream, mut second: TcpStream) -> io::Result<()> {
    first.send("the request").await?;
    first.shutdown().await?;
    assert_eq!(receive(&mut second, 100).await?, b"the request");
    assert!(second.recv().await?.is_none(), "bytes arrived after the end");
    let late = first.send("too late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::BrokenPipe);
    second.send("an answer").await?;
    second.shutdown().await?;
    assert_eq!(receive(&mut first, 100).await?, b"an answer");
    assert!(first.recv().await?.is_none());
    Ok(())
}

pub(crate) async fn a_reset_is_reported_and_stays() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    client.abort();
    for _ in 0..3 {
        assert_eq!(server.recv().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // A send does not wait for the peer, so the first send may still succeed. Once a send or a
    // drain has failed, the error stays.
    let error = loop {
        if let Err(error) = server.send("hello?").await {
            break error;
        }
        if let Err(error) = server.drain().await {
            break error;
        }
    };
    let errors = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(errors.contains(&error.kind()), "{error}");
    assert!(
        errors.contains(&server.drain().await.unwrap_err().kind()),
        "the error of a send was not returned again"
    );
    Ok(())
}

/// A send takes the error of the socket before the first receive.
pub(crate) async fn a_reset_that_a_send_has_reported_is_not_the_end() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("half a reply").await?;
    client.drain().await?;
    client.abort();
    while server.send("hello?").await.is_ok() && server.drain().await.is_ok() {}
    assert_eq!(receive(&mut server, 12).await?, b"half a reply");
    for _ in 0..2 {
        assert_eq!(server.recv().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    Ok(())
}

/// Bytes and the end after them arrive before the first receive, and a send has already failed.
pub(crate) async fn an_end_after_unread_bytes_is_received() -> io::Result<()> {
    let (mut client, mut server) = UnixStream::pair()?;
    client.send("the request").await?;
    client.drain().await?;
    drop(client);
    while server.send("hello?").await.is_ok() && server.drain().await.is_ok() {}
    assert_eq!(server.recv().await?.as_deref(), Some(&b"the request"[..]));
    // A client that has not read the bytes from the server resets a Unix stream.
    assert!(!matches!(server.recv().await, Ok(Some(_))), "bytes arrived that were not sent");

    let (mut client, mut server) = pair().await?;
    client.send("the request").await?;
    client.close().await?;
    while server.send("hello?").await.is_ok() && server.drain().await.is_ok() {}
    assert_eq!(receive(&mut server, 11).await?, b"the request");
    assert!(server.recv().await?.is_none(), "bytes arrived that were not sent");
    Ok(())
}

pub(crate) async fn four_mebibytes_are_echoed() -> io::Result<()> {
    let (client, server) = pair().await?;
    spawn(echo(server));
    let sent = pattern(4 << 20);
    let (mut receiving, mut sending) = client.into_split();
    let text = sent.clone();
    let sender = spawn(async move {
        sending.send(text).await?;
        sending.shutdown().await
    });
    let mut got = Vec::new();
    while let Some(lease) = receiving.recv().await? {
        got.extend_from_slice(&lease);
    }
    assert!(got == sent);
    sender.await.expect("the task panicked")
}

pub(crate) async fn two_thousand_single_bytes_are_echoed() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    spawn(echo(server));
    let sent = pattern(2000);
    for byte in &sent {
        client.send(vec![*byte]).await?;
    }
    assert!(receive(&mut client, 2000).await? == sent);
    // Sends one byte at a time, each after the echo of the previous one.
    for byte in &sent {
        client.send(vec![*byte]).await?;
        assert_eq!(receive(&mut client, 1).await?, [*byte]);
    }
    Ok(())
}

pub(crate) async fn halves_work_independently() -> io::Result<()> {
    let (client, server) = pair().await?;
    let (one, other) = (pattern(300_000), pattern(500_000));
    let ends = [(client, one.clone(), other.clone()), (server, other, one)];
    let mut tasks = Vec::new();
    for (stream, sent, expected) in ends {
        let (mut receiving, mut sending) = stream.into_split();
        tasks.push(spawn(async move {
            for piece in sent.chunks(7919) {
                sending.send(piece.to_vec()).await?;
            }
            // Dropping this half shuts down the sending side.
            sending.drain().await
        }));
        tasks.push(spawn(async move {
            let mut got = Vec::new();
            while let Some(lease) = receiving.recv().await? {
                got.extend_from_slice(&lease);
            }
            assert!(got == expected);
            Ok(())
        }));
    }
    for task in tasks {
        task.await.expect("the task panicked")?;
    }
    Ok(())
}

pub(crate) async fn halves_become_one_stream_again() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    client.send("shown before").await?;
    let (mut receiving, mut sending) = server.into_split();
    assert!(receiving.fill_at_least(5).await?.starts_with(b"shown"));
    sending.send("sent by the half").await?;
    let (other_receiving, other_sending) = UnixStream::pair()?.0.into_split();
    let error = TcpStream::reunite(receiving, other_sending).unwrap_err();
    assert!(error.to_string().contains("to different streams"), "{error}");
    let (receiving, other_sending) = (error.receiving, error.sending);
    let error = TcpStream::reunite(other_receiving, other_sending).unwrap_err();
    assert!(error.to_string().contains("to a Unix stream, not to a Tcp stream"), "{error}");
    assert!(UnixStream::reunite(error.receiving, error.sending).is_ok());
    let mut server =
        TcpStream::reunite(receiving, sending).expect("the halves belong to different streams");
    assert_eq!(receive(&mut server, 12).await?, b"shown before");
    server.send(", and by the stream").await?;
    drop(server);
    assert_eq!(receive(&mut client, 100).await?, b"sent by the half, and by the stream");
    Ok(())
}

pub(crate) async fn several_chunks_are_sent_as_one() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(200_000);
    let expected = text.repeat(2);
    let reader =
        spawn(async move { receive(&mut server, expected.len()).await.map(|got| got == expected) });
    for _ in 0..2 {
        client.send_vectored(text.chunks(1000).map(<[u8]>::to_vec)).await?;
    }
    assert!(reader.await.expect("the task panicked")?);
    Ok(())
}

/// Sends were zero-copy in the modes that ask for it. Linux's loopback device copies them all the
/// same.
pub(crate) fn were_zero_copy(mode: Mode, counters: &Counters) {
    assert_eq!(counters.zero_copy_sends > 0, mode.is_zero_copy(), "{counters:?}");
    assert_eq!(counters.zero_copy_copied > 0, mode == Mode::UringWithoutCopies, "{counters:?}");
    assert_eq!(counters.late_completions, 0, "{counters:?}");
}
