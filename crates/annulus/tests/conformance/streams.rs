//! Bytes, in order, to the end of the stream.

use crate::common::{echo, pair, pattern, receive};
use crate::mode::Mode;
use annulus::net::{TcpStream, UnixStream};
use annulus::{Counters, spawn};
use std::io::{self, ErrorKind};

pub(crate) async fn the_client_half_closes_and_still_hears() -> io::Result<()> {
    let (client, server) = pair().await?;
    half_close(client, server).await
}

pub(crate) async fn the_server_half_closes_and_still_hears() -> io::Result<()> {
    let (client, server) = pair().await?;
    half_close(server, client).await
}

/// The first ends its sending side; the second hears that, answers, and ends too.
async fn half_close(mut first: TcpStream, mut second: TcpStream) -> io::Result<()> {
    first.send("last words").await?;
    first.shutdown().await?;
    assert_eq!(receive(&mut second, 100).await?, b"last words");
    assert!(second.recv().await?.is_none(), "the end stays");
    let late = first.send("too late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::BrokenPipe);
    second.send("an answer").await?;
    second.shutdown().await?;
    assert_eq!(receive(&mut first, 100).await?, b"an answer");
    assert!(first.recv().await?.is_none());
    Ok(())
}

pub(crate) async fn a_reset_is_seen_and_stays() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    client.abort();
    for _ in 0..3 {
        assert_eq!(server.recv().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // Sends do not wait for an answer: one of them finds out, and the error stays.
    let error = loop {
        if let Err(error) = server.send("hello?").await {
            break error;
        }
        if let Err(error) = server.flush().await {
            break error;
        }
    };
    let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(gone.contains(&error.kind()), "{error}");
    assert!(gone.contains(&server.flush().await.unwrap_err().kind()), "a send's error stays");
    Ok(())
}

/// The end has come, behind bytes, before anything is received; and a send has taken the error that came with it.
pub(crate) async fn an_end_behind_unread_bytes_is_heard() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("last words").await?;
    client.flush().await?;
    client.abort();
    while server.send("hello?").await.is_ok() && server.flush().await.is_ok() {}
    assert_eq!(receive(&mut server, 10).await?, b"last words");
    assert!(!matches!(server.recv().await, Ok(Some(_))), "nothing more was sent");

    let (mut client, mut server) = UnixStream::pair()?;
    client.send("last words").await?;
    client.flush().await?;
    drop(client);
    while server.send("hello?").await.is_ok() && server.flush().await.is_ok() {}
    assert_eq!(server.recv().await?.as_deref(), Some(&b"last words"[..]));
    assert!(!matches!(server.recv().await, Ok(Some(_))), "nothing more was sent");
    Ok(())
}

pub(crate) async fn four_mebibytes_come_back() -> io::Result<()> {
    let (client, server) = pair().await?;
    spawn(echo(server));
    let sent = pattern(4 << 20);
    let (mut hears, mut says) = client.split();
    let text = sent.clone();
    let speaker = spawn(async move {
        says.send(text).await?;
        says.shutdown().await
    });
    let mut got = Vec::new();
    while let Some(lease) = hears.recv().await? {
        got.extend_from_slice(&lease);
    }
    assert!(got == sent);
    speaker.await.expect("no panic")
}

pub(crate) async fn two_thousand_single_bytes_come_back() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    spawn(echo(server));
    let sent = pattern(2000);
    for byte in &sent {
        client.send(vec![*byte]).await?;
    }
    assert!(receive(&mut client, 2000).await? == sent);
    // And one at a time, answered each.
    for byte in &sent {
        client.send(vec![*byte]).await?;
        assert_eq!(receive(&mut client, 1).await?, [*byte]);
    }
    Ok(())
}

pub(crate) async fn halves_work_apart() -> io::Result<()> {
    let (client, server) = pair().await?;
    let (one, other) = (pattern(300_000), pattern(500_000));
    let ends = [(client, one.clone(), other.clone()), (server, other, one)];
    let mut tasks = Vec::new();
    for (stream, says, hears) in ends {
        let (mut receiving, mut sending) = stream.split();
        tasks.push(spawn(async move {
            for piece in says.chunks(7919) {
                sending.send(piece.to_vec()).await?;
            }
            // Dropping this half ends the sending side.
            sending.flush().await
        }));
        tasks.push(spawn(async move {
            let mut got = Vec::new();
            while let Some(lease) = receiving.recv().await? {
                got.extend_from_slice(&lease);
            }
            assert!(got == hears);
            Ok(())
        }));
    }
    for task in tasks {
        task.await.expect("no panic")?;
    }
    Ok(())
}

pub(crate) async fn several_chunks_go_as_one() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(200_000);
    let expected = text.repeat(2);
    let reader =
        spawn(async move { receive(&mut server, expected.len()).await.map(|got| got == expected) });
    for _ in 0..2 {
        client.send_vectored(text.chunks(1000).map(<[u8]>::to_vec)).await?;
    }
    assert!(reader.await.expect("no panic")?);
    Ok(())
}

/// Where sends are not copied, these were not; but the loopback of Linux copies all the same.
pub(crate) fn were_lent(mode: Mode, counted: &Counters) {
    assert_eq!(counted.zero_copy_sends > 0, mode.lends(), "{counted:?}");
    assert_eq!(counted.zero_copy_copied > 0, mode == Mode::UringWithoutCopies, "{counted:?}");
    assert_eq!(counted.late_completions, 0, "{counted:?}");
}
