//! Giving up waiting: unpolled, polled once, and at every moment until it would have been done.

use crate::common::{pair, pattern, receive, touch};
use annulus::net::{TcpListener, TcpStream};
use annulus::time::{sleep, timeout};
use annulus::{JoinHandle, spawn};
use std::io;
use std::time::Duration;

/// Text of these tests: many times the bounds and the smallest network's buffers.
const LEN: usize = 300_000;

/// Moments from at once to long after what is waited for has come.
fn moments() -> impl Iterator<Item = Duration> + Clone {
    [0, 1, 5, 20, 50, 100, 300, 1000, 5000].into_iter().map(Duration::from_micros)
}

/// What the peer hears until the end of the stream.
fn listen(mut stream: TcpStream) -> JoinHandle<io::Result<Vec<u8>>> {
    spawn(async move { receive(&mut stream, usize::MAX).await })
}

pub(crate) async fn accepts_lose_no_connection() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    drop(listener.accept());
    assert!(touch(listener.accept()).is_none());
    let connecting = spawn(async move {
        let mut clients = Vec::new();
        for wait in moments().cycle().take(40) {
            clients.push(TcpStream::connect(address).await?);
            sleep(wait).await;
        }
        io::Result::Ok(clients)
    });
    let mut accepted = Vec::new();
    let mut waits = moments().cycle();
    while accepted.len() < 40 {
        drop(listener.accept());
        accepted.extend(touch(listener.accept()).transpose()?);
        let wait = waits.next().unwrap_or_default();
        accepted.extend(timeout(wait, listener.accept()).await.ok().transpose()?);
    }
    let mut seen: Vec<_> = accepted.iter().map(|(_, from)| *from).collect();
    let clients = connecting.await.expect("no panic")?;
    let mut expected = clients.iter().map(TcpStream::local_addr).collect::<io::Result<Vec<_>>>()?;
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    Ok(())
}

pub(crate) async fn receives_lose_no_byte() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let text = pattern(LEN);
    let expected = text.clone();
    let speaking = spawn(async move {
        for (piece, wait) in text.chunks(5000).zip(moments().cycle()) {
            client.send(piece.to_vec()).await?;
            sleep(wait).await;
        }
        client.shutdown().await
    });
    let mut got = Vec::new();
    let mut waits = moments().cycle();
    loop {
        drop(server.recv());
        let wait = waits.next().unwrap_or_default();
        let next = match touch(server.recv()) {
            Some(lease) => Some(lease?),
            None => timeout(wait, server.recv()).await.ok().transpose()?,
        };
        match next {
            Some(Some(lease)) => got.extend_from_slice(&lease),
            Some(None) => break,
            None => {}
        }
    }
    assert!(got == expected);
    speaking.await.expect("no panic")
}

/// Whatever the listener sees of those who gave up is an end or a reset, without a byte.
pub(crate) async fn connects_leave_nothing() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (mut came, mut stayed) = (0, Vec::new());
    for wait in moments().cycle().take(60) {
        drop(TcpStream::connect(address));
        assert!(touch(TcpStream::connect(address)).is_none());
        stayed.extend(timeout(wait, TcpStream::connect(address)).await.ok().transpose()?);
    }
    for stream in &mut stayed {
        stream.send("I stayed").await?;
    }
    while came < stayed.len() {
        let (mut server, _) = listener.accept().await?;
        match receive(&mut server, 8).await {
            Ok(got) if got.is_empty() => {}
            Ok(got) => {
                assert_eq!(got, b"I stayed");
                came += 1;
            }
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        }
    }
    Ok(())
}

pub(crate) async fn sends_go_all_the_same() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let heard = listen(server);
    let text = pattern(LEN);
    for (piece, wait) in text.chunks(9000).zip(moments().cycle()) {
        drop(client.send("never polled, never sent"));
        match timeout(wait, client.send(piece.to_vec())).await {
            Ok(sent) => sent?,
            // It fills the queue: only when that is empty again is the next one certain to be taken at once.
            Err(_elapsed) => client.flush().await?,
        }
    }
    assert!(touch(client.send(text.clone())).is_none(), "far above the bound");
    // This one waits behind it.
    client.send("the end").await?;
    client.shutdown().await?;
    let got = heard.await.expect("no panic")?;
    assert!(got == [&text[..], &text, b"the end"].concat());
    Ok(())
}

pub(crate) async fn flushes_lose_nothing() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let heard = listen(server);
    let text = pattern(LEN);
    for (piece, wait) in text.chunks(9000).zip(moments().cycle()) {
        client.send(piece.to_vec()).await?;
        drop(client.flush());
        touch(client.flush()).transpose()?;
        timeout(wait, client.flush()).await.unwrap_or(Ok(()))?;
    }
    client.flush().await?;
    client.shutdown().await?;
    assert!(heard.await.expect("no panic")? == text);
    Ok(())
}

pub(crate) async fn shutdowns_happen_once_polled() -> io::Result<()> {
    for wait in moments() {
        let (mut client, server) = pair().await?;
        let heard = listen(server);
        let text = pattern(20_000);
        drop(client.shutdown());
        // The unpolled one has ended nothing.
        client.send(text.clone()).await?;
        if wait.is_zero() {
            touch(client.shutdown()).transpose()?;
        } else {
            timeout(wait, client.shutdown()).await.unwrap_or(Ok(()))?;
        }
        assert!(heard.await.expect("no panic")? == text);
        assert_eq!(client.send("late").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        client.shutdown().await?;
    }
    Ok(())
}
