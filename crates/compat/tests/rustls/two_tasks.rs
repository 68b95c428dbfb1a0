//! Sessions whose directions are used by two tasks.

use crate::rustls::certificates::session;
use crate::rustls::worlds::{Outcome, Session, World, everywhere};
use annulus::io::{AsyncRecv, AsyncSend, FromTokio};
use annulus::time::{sleep, timeout};
use annulus_compat::OnThread;
use annulus_compat::hyper::Io;
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Number of bytes that the writer sends, which is more than the buffers of two sockets hold.
fn total(world: World) -> usize {
    if world == World::Simulated { 2 << 20 } else { 20 << 20 }
}

/// Writes while the peer reads nothing, and lets another task receive a byte meanwhile. Then the
/// peer reads everything.
async fn receive_while_a_write_waits<R, W>(
    mut peer: Session,
    mut reader: R,
    mut writer: W,
    total: usize,
) -> Outcome
where
    R: AsyncRecv + 'static,
    W: AsyncSend + 'static,
{
    let written = Rc::new(Cell::new(0));
    let counted = written.clone();
    let writing = annulus::spawn(async move {
        let part = vec![7; 16 << 10];
        while counted.get() < total {
            writer.write_all(&part).await?;
            counted.update(|count| count + part.len());
        }
        writer.flush().await
    });
    let reading = annulus::spawn(async move {
        while let Some(lease) = reader.recv().await? {
            drop(lease);
        }
        std::io::Result::Ok(reader)
    });
    sleep(Duration::from_millis(200)).await;
    assert!(written.get() < total, "the write does not wait");
    AsyncSend::send(&mut peer, "y").await?;
    sleep(Duration::from_millis(100)).await;
    let mut received = 0;
    while received < total {
        let lease = timeout(Duration::from_secs(10), AsyncRecv::recv(&mut peer)).await;
        let lease = lease.unwrap_or_else(|_| panic!("no more bytes after {received} of {total}"));
        received += lease?.expect("the stream ended early").len();
    }
    AsyncSend::shutdown(&mut peer).await?;
    writing.await??;
    drop(reading.await??);
    Ok(())
}

#[test]
fn receive_does_not_take_the_wake_of_a_split_writer() {
    everywhere(async |world| {
        let (client, server) = session(world).await?;
        let (reader, writer) = annulus::io::split(server);
        receive_while_a_write_waits(client, reader, writer, total(world)).await
    });
}

/// As a connection after an upgrade over TLS is used.
#[test]
fn receive_does_not_take_the_wake_of_a_writer_split_by_tokio() {
    everywhere(async |world| {
        let (client, server) = session(world).await?;
        let (reader, writer) = tokio::io::split(TokioIo::new(Io::new(OnThread::new(server))));
        let (reader, writer) = (FromTokio::new(reader), FromTokio::new(writer));
        receive_while_a_write_waits(client, reader, writer, total(world)).await
    });
}
