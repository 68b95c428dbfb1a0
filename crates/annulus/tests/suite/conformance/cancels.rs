//! Futures that are dropped: unpolled, polled once, and at many points before they would be ready.

use crate::common::{pair, pattern, receive, touch};
use annulus::net::{TcpListener, TcpStream};
use annulus::spawn;
use annulus::task::JoinHandle;
use annulus::time::{sleep, timeout};
use std::io;
use std::time::Duration;

/// Number of bytes to send: many times the bounds and the buffers of the smallest network.
const LEN: usize = 300_000;

/// Returns waits from zero to longer than any operation takes.
fn waits() -> impl Iterator<Item = Duration> + Clone {
    [0, 1, 5, 20, 50, 100, 300, 1000, 5000].into_iter().map(Duration::from_micros)
}

fn receive_all(mut stream: TcpStream) -> JoinHandle<io::Result<Vec<u8>>> {
    spawn(async move { receive(&mut stream, usize::MAX).await })
}

pub(crate) async fn accepts_lose_no_connection() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    drop(listener.accept());
    assert!(touch(listener.accept()).is_none());
    let connecting = spawn(async move {
        let mut clients = Vec::new();
        for wait in waits().cycle().take(40) {
            clients.push(TcpStream::connect(address).await?);
            sleep(wait).await;
        }
        io::Result::Ok(clients)
    });
    let mut accepted = Vec::new();
    let mut next_wait = waits().cycle();
    while accepted.len() < 40 {
        drop(listener.accept());
        accepted.extend(touch(listener.accept()).transpose()?);
        let wait = next_wait.next().unwrap_or_default();
        accepted.extend(timeout(wait, listener.accept()).await.ok().transpose()?);
    }
    let mut seen: Vec<_> = accepted.iter().map(|(_, from)| *from).collect();
    let clients = connecting.await.expect("the task panicked")?;
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
    let sender = spawn(async move {
        for (piece, wait) in text.chunks(5000).zip(waits().cycle()) {
            client.send(piece.to_vec()).await?;
            sleep(wait).await;
        }
        client.shutdown().await
    });
    let mut got = Vec::new();
    let mut next_wait = waits().cycle();
    loop {
        drop(server.recv());
        let wait = next_wait.next().unwrap_or_default();
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
    sender.await.expect("the task panicked")
}

/// The listener accepts a dropped connect as a connection that ends or is reset without sending a
/// byte.
pub(crate) async fn dropped_connects_send_no_byte() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (mut seen, mut kept) = (0, Vec::new());
    for wait in waits().cycle().take(60) {
        drop(TcpStream::connect(address));
        assert!(touch(TcpStream::connect(address)).is_none());
        kept.extend(timeout(wait, TcpStream::connect(address)).await.ok().transpose()?);
    }
    for stream in &mut kept {
        stream.send("was kept").await?;
    }
    while seen < kept.len() {
        let (mut server, _) = listener.accept().await?;
        match receive(&mut server, 8).await {
            Ok(got) if got.is_empty() => {}
            Ok(got) => {
                assert_eq!(got, b"was kept");
                seen += 1;
            }
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        }
    }
    Ok(())
}

pub(crate) async fn dropped_sends_are_sent_once_polled() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let received = receive_all(server);
    let text = pattern(LEN);
    for (piece, wait) in text.chunks(9000).zip(waits().cycle()) {
        drop(client.send("never polled, never sent"));
        match timeout(wait, client.send(piece.to_vec())).await {
            Ok(sent) => sent?,
            // The send fills the queue. The next send is accepted at once only if the queue is
            // empty.
            Err(_elapsed) => client.drain().await?,
        }
    }
    assert!(
        touch(client.send(text.clone())).is_none(),
        "a send far above the bound was accepted at once"
    );
    // The next send waits behind the large one.
    client.send("the end").await?;
    client.shutdown().await?;
    let got = received.await.expect("the task panicked")?;
    assert!(got == [&text[..], &text, b"the end"].concat());
    Ok(())
}

pub(crate) async fn drains_lose_nothing() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let received = receive_all(server);
    let text = pattern(LEN);
    for (piece, wait) in text.chunks(9000).zip(waits().cycle()) {
        client.send(piece.to_vec()).await?;
        drop(client.drain());
        touch(client.drain()).transpose()?;
        timeout(wait, client.drain()).await.unwrap_or(Ok(()))?;
    }
    client.drain().await?;
    client.shutdown().await?;
    assert!(received.await.expect("the task panicked")? == text);
    Ok(())
}

pub(crate) async fn shutdowns_happen_once_polled() -> io::Result<()> {
    for wait in waits() {
        let (mut client, server) = pair().await?;
        let received = receive_all(server);
        let text = pattern(20_000);
        drop(client.shutdown());
        // The shutdown was never polled, so it has no effect.
        client.send(text.clone()).await?;
        if wait.is_zero() {
            touch(client.shutdown()).transpose()?;
        } else {
            timeout(wait, client.shutdown()).await.unwrap_or(Ok(()))?;
        }
        assert!(received.await.expect("the task panicked")? == text);
        assert_eq!(client.send("late").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        client.shutdown().await?;
    }
    Ok(())
}
