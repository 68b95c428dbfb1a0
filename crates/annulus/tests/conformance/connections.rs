//! Connecting and accepting.

use crate::common::{echo, pair, pattern, receive, touch};
use annulus::net::{ConnectOptions, TcpListener, TcpStream};
use annulus::spawn;
use annulus::time::sleep;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// A port where nobody listens.
const CLOSED: &str = "127.0.0.1:1";

pub(crate) async fn both_ends_know_each_other() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut client = TcpStream::connect(address).await?;
    let (server, from) = listener.accept().await?;
    assert_eq!(client.peer_addr()?, address);
    assert_eq!(server.local_addr()?, address);
    assert_eq!((client.local_addr()?, from), (from, server.peer_addr()?));
    spawn(echo(server));
    client.send("to and fro").await?;
    assert_eq!(receive(&mut client, 10).await?, b"to and fro");
    Ok(())
}

pub(crate) async fn a_client_leaves_from_the_address_it_names() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let source = IpAddr::from([127, 0, 0, 9]);
    for _ in 0..3 {
        let options = ConnectOptions::new().source(source);
        let client = options.connect(listener.local_addr()?).await?;
        let (_server, from) = listener.accept().await?;
        assert_eq!(from.ip(), source);
        assert_eq!(client.local_addr()?, from);
    }
    Ok(())
}

pub(crate) async fn a_refusal_names_the_address() -> io::Result<()> {
    for _ in 0..10 {
        let error = TcpStream::connect(CLOSED).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(CLOSED), "{error}");
    }
    // And who is there is reached all the same.
    pair().await.map(drop)
}

pub(crate) async fn a_thousand_connections_echo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream));
        }
    });
    let visit = move |number: usize| async move {
        let mut client = TcpStream::connect(address).await?;
        for round in 0..3 {
            let sent = pattern(number + round)[number.saturating_sub(100)..].to_vec();
            client.send(sent.clone()).await?;
            assert!(receive(&mut client, sent.len()).await? == sent, "connection {number}");
        }
        io::Result::Ok(client)
    };
    let visits: Vec<_> = (1..=1000).map(|number| spawn(visit(number))).collect();
    let mut open = Vec::new();
    for visit in visits {
        open.push(visit.await.expect("a visit without panic")?);
    }
    assert_eq!(open.len(), 1000, "all at once");
    Ok(())
}

pub(crate) async fn connections_are_accepted_though_nobody_waits() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(TcpStream::connect(address).await?);
    }
    let mut expected = HashSet::new();
    let mut seen = HashSet::new();
    for client in &clients {
        expected.insert(client.local_addr()?);
        seen.insert(listener.accept().await?.1);
    }
    assert_eq!(seen, expected);
    Ok(())
}

/// Only where descriptors are real: elsewhere the way out is refused, in words.
pub(crate) async fn a_connection_moves_with_what_it_had_received() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("already here, ").await?;
    assert_eq!(receive(&mut server, 7).await?.len(), 14);
    client.send("under way").await?;
    let parts = match server.into_parts().await {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(()),
        parts => parts?,
    };
    let mut moved = TcpStream::from_parts(parts)?;
    client.shutdown().await?;
    assert_eq!(receive(&mut moved, 100).await?, b"under way");
    moved.send("and back").await?;
    assert_eq!(receive(&mut client, 8).await?, b"and back");
    Ok(())
}

/// What was received before a reset would look like all there is.
pub(crate) async fn a_connection_that_was_reset_does_not_move() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("half a message").await?;
    client.flush().await?;
    assert!(touch(server.recv()).is_none());
    client.abort();
    // Its reset reaches the other end before this.
    sleep(Duration::from_millis(5)).await;
    let error = server.into_parts().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    Ok(())
}
