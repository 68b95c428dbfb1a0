//! Handles dropped while operations are in flight.

use crate::common::{own_address, pair, pattern, receive, touch};
use annulus::net::{TcpListener, TcpStream};
use annulus::spawn;
use annulus::task::yield_now;
use std::cell::Cell;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::rc::Rc;

pub(crate) async fn an_unpolled_send_sends_nothing() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    drop(client.send("never"));
    client.send("sent").await?;
    client.shutdown().await?;
    assert_eq!(receive(&mut server, 100).await?, b"sent");
    Ok(())
}

pub(crate) async fn a_dropped_stream_sends_accepted_bytes() -> io::Result<()> {
    // The stream is dropped at once, after a turn, and with a pending receive.
    for stage in 0..3 {
        let (mut client, mut server) = pair().await?;
        let text = pattern(400_000);
        assert!(touch(client.send(text.clone())).is_none(), "far above the bound");
        if stage > 0 {
            yield_now().await;
        }
        if stage > 1 {
            assert!(touch(client.recv()).is_none());
        }
        drop(client);
        assert!(receive(&mut server, usize::MAX).await? == text, "stage {stage}");
    }
    Ok(())
}

pub(crate) async fn halves_may_be_dropped_in_any_order() -> io::Result<()> {
    for receiving_first in [true, false] {
        let (client, mut server) = pair().await?;
        let (mut receiving, mut sending) = client.into_split();
        assert!(touch(receiving.recv()).is_none());
        sending.send("all of it").await?;
        if receiving_first {
            drop(receiving);
            drop(sending);
        } else {
            drop(sending);
            assert_eq!(receive(&mut server, 100).await?, b"all of it");
            server.send("an answer").await?;
            let lease = receiving.recv().await?.expect("the stream ended too early");
            assert!(b"an answer".starts_with(&lease));
            continue;
        }
        assert_eq!(receive(&mut server, 100).await?, b"all of it");
    }
    Ok(())
}

pub(crate) async fn a_dropped_listener_closes_unclaimed_connections() -> io::Result<()> {
    let listener = TcpListener::bind(own_address())?;
    let address = listener.local_addr()?;
    let mut kept = TcpStream::connect(address).await?;
    let (mut server, _) = listener.accept().await?;
    let mut unclaimed = TcpStream::connect(address).await?;
    assert!(touch(listener.accept()).is_none_or(|accepted| accepted.is_ok()));
    drop(listener);
    // An unclaimed connection ends or is reset.
    match unclaimed.recv().await {
        Ok(end) => assert!(end.is_none()),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
    }
    // An accepted connection stays open, and the port is closed.
    server.send("alive").await?;
    assert_eq!(receive(&mut kept, 5).await?, b"alive");
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    Ok(())
}

pub(crate) async fn a_lease_outlives_its_stream() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("kept").await?;
    let lease = server.recv().await?.expect("the stream ended too early");
    let shared = lease.into_shared();
    client.send("kept, too").await?;
    let lease = server.recv().await?.expect("the stream ended too early");
    drop((client, server));
    for _ in 0..20 {
        let (mut client, mut server) = pair().await?;
        client.send("others").await?;
        receive(&mut server, 6).await?;
    }
    assert!(
        b"kept".starts_with(&shared)
            && (b"kept, too".starts_with(&lease) || b"kept".ends_with(&lease))
    );
    Ok(())
}

pub(crate) async fn a_dropped_join_handle_detaches() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    drop(spawn(async move {
        yield_now().await;
        client.send("sent by a detached task").await
    }));
    assert_eq!(receive(&mut server, usize::MAX).await?, b"sent by a detached task");
    Ok(())
}

/// The task has a receive and a send in flight; its peer receives the end.
pub(crate) async fn an_aborted_task_closes_its_stream() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let dropped = Rc::new(Cell::new(false));
    let flag = SetOnDrop(dropped.clone());
    let task = spawn(async move {
        assert!(touch(client.recv()).is_none());
        client.send("started").await?;
        pending::<()>().await;
        drop((client, flag));
        io::Result::Ok(())
    });
    assert_eq!(receive(&mut server, 7).await?, b"started");
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(server.recv().await?.is_none());
    assert!(dropped.get());
    Ok(())
}

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}
