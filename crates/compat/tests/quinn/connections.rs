//! Connections between endpoints of this module.

use crate::quinn::common::*;
use annulus::net::UdpSocket;
use annulus_compat::quinn::Socket;
use quinn::{Connection, ConnectionError, TransportConfig, VarInt};
use std::sync::Arc;

async fn converse(at: &str, from: &str) -> Outcome {
    let (server, client) = endpoints(at, from, TransportConfig::default())?;
    echo(&server);
    let connection = connect(&client, server.local_addr()?).await?;
    for len in [0, 1, 1200, 100_000, 1_000_000] {
        exchange(&connection, &pattern(len, len)).await?;
    }
    for number in 0..20 {
        let sent = pattern(number, 50 * number);
        connection.send_datagram(sent.clone().into())?;
        assert_eq!(connection.read_datagram().await?, sent);
    }
    connection.close(0u32.into(), b"");
    client.wait_idle().await;
    server.wait_idle().await;
    Ok(())
}

#[test]
fn streams_and_datagrams_are_echoed() {
    everywhere(|| converse("127.0.0.1:0", "127.0.0.1:0"));
}

#[test]
fn over_ipv6() {
    everywhere(|| converse("[::1]:0", "[::1]:0"));
}

/// The client's socket is dual-stack, and its peer has an IPv4 address.
#[test]
fn from_ipv6_to_ipv4() {
    everywhere(|| converse("127.0.0.1:0", "[::]:0"));
}

/// Transfers 30 MB and verifies each byte. Needs far fewer sends than datagrams.
#[test]
fn large_transfer_needs_few_sends() {
    const PART_BYTES: usize = 1_000_003;
    const PART_COUNT: usize = 30;
    everywhere(async || {
        let (server, client) = on_loopback()?;
        let (remote, ours) = pair(&server, &client).await?;
        let expected = pattern(1, PART_BYTES);
        let sent = expected.clone();
        let before = annulus::counters().expect("in a runtime");
        let sending = annulus::spawn(async move {
            let mut stream = ours.open_uni().await?;
            for _ in 0..PART_COUNT {
                stream.write_all(&sent).await?;
            }
            stream.finish()?;
            stream.stopped().await?;
            Outcome::Ok(ours.stats())
        });
        let (mut stream, mut at) = (remote.accept_uni().await?, 0);
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            at = verified(&expected, at, &chunk.bytes);
        }
        assert_eq!(at, PART_BYTES * PART_COUNT);
        let stats = sending.await??;
        let (sent, sends) = (stats.udp_tx.datagrams, stats.udp_tx.ios);
        assert!(sent > 5 * sends, "{sent} datagrams in {sends} sends");
        let after = annulus::counters().expect("in a runtime");
        let calls = after.enters - before.enters + after.direct_sends - before.direct_sends;
        assert!(after.direct_sends > before.direct_sends, "no segments were sent directly");
        // `calls` counts the system calls of both endpoints, which share this runtime.
        assert!(2 * calls < sent, "{sent} datagrams in {calls} system calls");
        Ok(())
    });
}

/// Verifies bytes at an offset, and returns the offset after them.
fn verified(expected: &[u8], mut at: usize, mut bytes: &[u8]) -> usize {
    while !bytes.is_empty() {
        let expected = &expected[at % expected.len()..];
        let len = expected.len().min(bytes.len());
        assert!(bytes[..len] == expected[..len], "wrong bytes between {at} and {}", at + len);
        (at, bytes) = (at + len, &bytes[len..]);
    }
    at
}

#[test]
fn one_endpoint_carries_a_hundred_connections() {
    everywhere(async || {
        let (server, client) = on_loopback()?;
        echo(&server);
        let address = server.local_addr()?;
        let talk = async |connection: Connection, number: usize| {
            for round in 0..3 {
                exchange(&connection, &pattern(100 * number + round, 2000)).await?;
            }
            Outcome::Ok(())
        };
        // Connect one after the other: all first packets together exceed the kernel's queue for a
        // socket.
        let mut open = Vec::new();
        for _ in 0..100 {
            open.push(connect(&client, address).await?);
        }
        let talks =
            open.iter().cloned().zip(0..).map(|(connection, number)| talk(connection, number));
        let tasks: Vec<_> = talks.map(annulus::spawn).collect();
        for task in tasks {
            task.await??;
        }
        assert_eq!((client.open_connections(), server.open_connections()), (100, 100));
        drop(open);
        server.wait_idle().await;
        Ok(())
    });
}

#[test]
fn a_close_arrives_with_its_reason() {
    everywhere(async || {
        let (server, client) = on_loopback()?;
        let (remote, ours) = pair(&server, &client).await?;
        ours.close(7u32.into(), b"enough");
        match remote.closed().await {
            ConnectionError::ApplicationClosed(close) => {
                assert_eq!(
                    (close.error_code, &*close.reason),
                    (VarInt::from(7u32), &b"enough"[..])
                );
            }
            other => return Err(other.into()),
        }
        assert_eq!(ours.closed().await, ConnectionError::LocallyClosed);
        Ok(())
    });
}

/// The connections continue after the last handle of their endpoint is dropped. Once they are
/// closed, the socket is closed too.
#[test]
fn connections_survive_the_drop_of_their_endpoint() {
    everywhere(async || {
        let (server, client) = on_loopback()?;
        echo(&server);
        let (address, from) = (server.local_addr()?, client.local_addr()?);
        let connection = connect(&client, address).await?;
        drop(client);
        exchange(&connection, &pattern(3, 50_000)).await?;
        assert!(UdpSocket::bind(from).is_err(), "the socket is already closed");
        connection.close(0u32.into(), b"");
        drop(connection);
        server.wait_idle().await;
        while UdpSocket::bind(from).is_err() {
            annulus::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        Ok(())
    });
}

#[test]
fn a_connection_moves_to_another_address() {
    everywhere(async || {
        let (server, client) = on_loopback()?;
        echo(&server);
        let connection = connect(&client, server.local_addr()?).await?;
        exchange(&connection, &pattern(1, 1000)).await?;
        let before = client.local_addr()?;
        client.rebind_abstract(Arc::new(Socket::new(UdpSocket::bind("127.0.0.1:0")?)?))?;
        assert_ne!(client.local_addr()?, before);
        exchange(&connection, &pattern(2, 100_000)).await?;
        // A standard library socket also works.
        client.rebind(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
        exchange(&connection, &pattern(3, 100_000)).await
    });
}
