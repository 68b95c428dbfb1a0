//! The last bytes before a close arrive, although the peer sends bytes that nobody reads.

use crate::common::{pair, pattern};
use annulus::net::{ConnectionLimit, ListenOptions, TcpStream};
use annulus::task::JoinHandle;
use annulus::time::sleep;
use annulus::{spawn, stats};
use std::io;
use std::time::Duration;

const LEN: usize = 300_000;

/// Reads to the end, slowly, and sends a few bytes before each read, even after the other side has
/// closed.
fn read_and_disturb(mut stream: TcpStream) -> JoinHandle<io::Result<Vec<u8>>> {
    spawn(async move {
        let mut got = Vec::new();
        loop {
            // The send fails once the connection is reset, and then the receive fails too.
            _ = stream.send("nobody reads this").await;
            sleep(Duration::from_micros(50)).await;
            match stream.recv().await? {
                Some(lease) => got.extend_from_slice(&lease),
                None => return Ok(got),
            }
        }
    })
}

pub(crate) async fn bytes_before_a_shutdown_arrive_after_the_drop() -> io::Result<()> {
    for halves in [false, true] {
        let (mut client, server) = pair().await?;
        let reading = read_and_disturb(server);
        client.send(pattern(LEN)).await?;
        if halves {
            let (receiving, mut sending) = client.into_split();
            sending.shutdown().await?;
            drop((receiving, sending));
        } else {
            client.shutdown().await?;
            drop(client);
        }
        assert!(reading.await.expect("the task panicked")? == pattern(LEN));
    }
    Ok(())
}

pub(crate) async fn queued_bytes_arrive_after_the_drop() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let reading = read_and_disturb(server);
    client.send(pattern(LEN)).await?;
    drop(client);
    assert!(reading.await.expect("the task panicked")? == pattern(LEN));
    Ok(())
}

pub(crate) async fn bytes_before_a_close_arrive() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    let reading = read_and_disturb(server);
    client.send(pattern(LEN)).await?;
    client.close().await?;
    assert!(reading.await.expect("the task panicked")? == pattern(LEN));
    Ok(())
}

/// The number of unread bytes that a closing stream discards is bounded.
pub(crate) async fn a_peer_that_never_stops_sending_is_reset() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    server.send("enough").await?;
    server.shutdown().await?;
    drop(server);
    assert_eq!(&*client.recv_exact(6).await?, b"enough");
    while client.send(vec![0; 100_000]).await.is_ok() {}
    Ok(())
}

/// The wait is bounded, since a peer may neither send nor close.
pub(crate) async fn a_silent_peer_keeps_no_descriptor() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    server.send("last").await?;
    server.shutdown().await?;
    client.send("unread").await?;
    client.drain().await?;
    drop(server);
    while stats().expect("not in a runtime").resources.streams > 1 {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(&*client.recv_exact(4).await?, b"last");
    Ok(())
}

/// A connection of a runtime counts towards its limit until its descriptor is closed, and no
/// longer.
pub(crate) async fn a_close_that_waits_keeps_its_place_in_a_limit() -> io::Result<()> {
    let limit = ConnectionLimit::new(1);
    let listener = ListenOptions::new().limit(&limit).bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut first = TcpStream::connect(address).await?;
    let second = spawn(TcpStream::connect(address));
    first.send("unread").await?;
    let (mut server, _) = listener.accept().await?;
    let reading = spawn(async move {
        let got = first.recv_exact(LEN).await?;
        assert!(*got == pattern(LEN));
        first.recv().await
    });
    server.send(pattern(LEN)).await?;
    drop(server);
    listener.accept().await?;
    assert!(reading.await.expect("the task panicked")?.is_none());
    drop(second.await.expect("the task panicked")?);
    Ok(())
}
