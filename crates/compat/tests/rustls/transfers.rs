//! Transfers in both directions, with all bytes compared.

use crate::rustls::certificates::{NAME, authority, session};
use crate::rustls::worlds::{World, everywhere};
use annulus::io::{AsyncRecv, AsyncSend, AsyncStream, FromTokio};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::compat::{FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

/// Returns the number of bytes in each direction, which is smaller in simulation because that is
/// slower.
fn total(world: World) -> u64 {
    if world == World::Simulated { 1 << 19 } else { 4 << 20 }
}

/// Fills memory with the bytes that a direction carries from an offset on.
fn fill(direction: u8, offset: u64, bytes: &mut [u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        *byte = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ direction;
    }
}

fn check(direction: u8, offset: u64, bytes: &[u8]) {
    let mut expected = vec![0; bytes.len()];
    fill(direction, offset, &mut expected);
    assert!(bytes == expected, "direction {direction}, from {offset} on");
}

async fn write_all(mut to: impl AsyncWrite + Unpin, direction: u8, total: u64) -> io::Result<()> {
    let mut buf = vec![0; 50_000];
    let mut offset = 0;
    while offset < total {
        let count = (total - offset).min(50_000) as usize;
        fill(direction, offset, &mut buf[..count]);
        to.write_all(&buf[..count]).await?;
        offset += count as u64;
    }
    to.shutdown().await
}

async fn read_all(mut from: impl AsyncRead + Unpin, direction: u8, total: u64) -> io::Result<()> {
    let mut buf = vec![0; 70_000];
    let mut offset = 0;
    loop {
        let count = from.read(&mut buf).await?;
        if count == 0 {
            break;
        }
        check(direction, offset, &buf[..count]);
        offset += count as u64;
    }
    assert_eq!(offset, total);
    Ok(())
}

/// Transfers bytes in both directions at once.
async fn duplex<C, S>(client: C, server: S, total: u64) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (client_reads, client_writes) = tokio::io::split(client);
    let (server_reads, server_writes) = tokio::io::split(server);
    tokio::try_join!(
        write_all(client_writes, 1, total),
        read_all(server_reads, 1, total),
        write_all(server_writes, 2, total),
        read_all(client_reads, 2, total),
    )?;
    Ok(())
}

/// Sends bytes in parts, compares the echo of each part, and shuts down.
async fn ask(mut stream: impl AsyncStream, total: u64) -> io::Result<()> {
    const PART_BYTES: u64 = 1 << 16;
    for offset in (0..total).step_by(PART_BYTES as usize) {
        let mut part = vec![0; PART_BYTES as usize];
        fill(3, offset, &mut part);
        stream.send(part).await?;
        check(3, offset, &stream.recv_exact(PART_BYTES as usize).await?);
    }
    stream.shutdown().await?;
    assert!(stream.recv().await?.is_none());
    Ok(())
}

async fn echo(mut stream: impl AsyncStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    stream.shutdown().await
}

fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}

#[test]
fn tokio_rustls_over_annulus_streams() {
    everywhere(async |world| {
        let (client, server) = world.pair().await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(authority().client()));
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(authority().server()));
        let (client, server) =
            tokio::try_join!(connector.connect(server_name(), client), acceptor.accept(server))?;
        duplex(client, server, total(world)).await?;
        Ok(())
    });
}

#[test]
fn futures_rustls_over_annulus_streams() {
    everywhere(async |world| {
        let (client, server) = world.pair().await?;
        let connector = futures_rustls::TlsConnector::from(Arc::new(authority().client()));
        let acceptor = futures_rustls::TlsAcceptor::from(Arc::new(authority().server()));
        let (client, server) = (client.compat(), server.compat());
        let (client, server) =
            tokio::try_join!(connector.connect(server_name(), client), acceptor.accept(server))?;
        let (client, server) = (FromTokio::new(client.compat()), FromTokio::new(server.compat()));
        tokio::try_join!(ask(client, total(world)), echo(server))?;
        Ok(())
    });
}

#[test]
fn sessions_through_annulus_traits() {
    everywhere(async |world| {
        let (client, server) = session(world).await?;
        tokio::try_join!(ask(client, total(world)), echo(server))?;
        Ok(())
    });
}

#[test]
fn sessions_through_tokio_traits() {
    everywhere(async |world| {
        let (client, server) = session(world).await?;
        duplex(client, server, total(world)).await?;
        Ok(())
    });
}

/// Each half runs in its own task.
#[test]
fn split_halves_in_two_tasks() {
    everywhere(async |world| {
        let (mut client, server) = session(world).await?;
        let (reads, writes) = tokio::io::split(server);
        let (mut reads, mut writes) = (FromTokio::new(reads), FromTokio::new(writes));
        let sends = annulus::spawn(async move {
            for number in 0..100_u32 {
                writes.send(format!("{number}\n")).await?;
            }
            AsyncSend::shutdown(&mut writes).await
        });
        let receives =
            annulus::spawn(async move { reads.recv_exact(5).await.map(|text| text.to_vec()) });
        for number in 0..100 {
            let line = client.recv_until(b'\n', 80).await?.expect("the stream ended early");
            assert_eq!(*line, *format!("{number}\n").as_bytes());
        }
        client.send("thank").await?;
        sends.await??;
        assert_eq!(receives.await??, b"thank");
        Ok(())
    });
}

/// A frame that spans records is returned in one piece, and the bytes after it stay in the stream.
#[test]
fn frames_may_span_records() {
    everywhere(async |world| {
        let (mut client, mut server) = session(world).await?;
        let sends = annulus::spawn(async move {
            for part in ["ab", "cd", "efg\nrest\n", "tail"] {
                client.send(part).await?;
            }
            AsyncSend::shutdown(&mut client).await?;
            io::Result::Ok(client)
        });
        assert_eq!(server.fill_at_least(5).await?[..5], *b"abcde");
        assert_eq!(server.fill_at_least(1).await?[..2], *b"ab", "fill_at_least consumed bytes");
        server.consume(1);
        assert_eq!(*server.recv_exact(3).await?, *b"bcd");
        assert_eq!(server.recv_until(b'\n', 80).await?.as_deref(), Some(&b"efg\n"[..]));
        // tokio's traits also return bytes that were only peeked at.
        let mut text = String::new();
        server.fill_at_least(2).await?;
        assert_eq!(AsyncReadExt::read_to_string(&mut server, &mut text).await?, 9);
        assert_eq!(text, "rest\ntail");
        assert!(
            server.fill_at_least(1).await?.is_empty(),
            "fill_at_least returned bytes after the end"
        );
        drop(sends.await??);
        Ok(())
    });
}
