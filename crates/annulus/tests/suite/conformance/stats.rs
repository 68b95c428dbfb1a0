//! The stats of a runtime.

use crate::common::pair;
use annulus::net::UdpSocket;
use annulus::spawn;
use annulus::stats::Stats;
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use std::future::pending;
use std::io;
use std::time::Duration;

async fn stats() -> io::Result<Stats> {
    annulus::handle()?.stats().await
}

pub(crate) async fn stats_count_open_resources() -> io::Result<()> {
    let before = stats().await?;
    let (client, server) = pair().await?;
    let open = stats().await?;
    assert_eq!(open.resources.streams, before.resources.streams + 2);
    assert!(open.turns > before.turns && open.uptime >= before.uptime);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let sockets = stats().await?;
    assert_eq!(sockets.resources.datagram_sockets, 1);
    let buffers = sockets.datagram_buffers.expect("no pool of datagram buffers");
    assert!(buffers.count > 0 && buffers.size > 0 && buffers.lent == 0);
    drop((client, server, socket));
    // Resources count until their operations in flight have been cancelled. The pair's listener was
    // dropped too.
    let is_open = |Stats { resources, .. }: Stats| {
        resources.streams + resources.listeners + resources.datagram_sockets > 0
    };
    while is_open(stats().await?) {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(crate) async fn stats_count_tasks_and_timers() -> io::Result<()> {
    let before = stats().await?;
    let idle: Vec<_> = (0..10).map(|_| spawn(pending::<()>())).collect();
    let spawned = stats().await?;
    assert_eq!(spawned.tasks.alive, before.tasks.alive + 10);
    assert_eq!(spawned.tasks.ready, before.tasks.ready + 10);
    assert_eq!(spawned.tasks.spawned, before.tasks.spawned + 10);
    // The tasks run and wait: nothing is ready except this test's deadline.
    let slept = timeout(Duration::from_secs(3600), sleep(Duration::from_millis(1))).await;
    slept.expect("the sleep timed out");
    let idling = stats().await?;
    assert_eq!((idling.tasks.alive, idling.tasks.ready), (spawned.tasks.alive, 0));
    let timer = spawn(sleep(Duration::from_secs(3600)));
    yield_now().await;
    let timed = stats().await?;
    assert_eq!(timed.resources.timers, idling.resources.timers + 1);
    drop((idle, timer));
    Ok(())
}

pub(crate) async fn polls_are_measured() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let echo = spawn(async move {
        while let Some(lease) = server.recv().await? {
            server.send(lease).await?;
        }
        io::Result::Ok(())
    });
    for _ in 0..20 {
        client.send("7").await?;
        assert_eq!(client.recv().await?.expect("the stream ended too early").len(), 1);
    }
    let measured = stats().await?;
    let timings = measured.timings.expect("the runtime does not measure");
    // The polls counted here are the answering task's. This test's own future is polled by
    // the loop, or by the host loop if the runtime is a guest.
    assert!(timings.poll.count() >= 20, "{timings:?}");
    assert!(timings.wake_to_poll.count() >= 20, "{timings:?}");
    assert_eq!(timings.turn.count(), measured.turns, "not all turns were timed");
    assert!(timings.turn.max() <= measured.uptime && timings.slow_polls == 0);
    client.shutdown().await?;
    echo.await.expect("the task panicked")
}

pub(crate) async fn stats_count_lent_buffers_and_bytes() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    let rest = stats().await?;
    // A single byte cannot arrive in parts.
    server.send("7").await?;
    let lease = client.recv().await?.expect("the stream ended too early");
    let lent = stats().await?;
    // If the pool is short, a lease is copied to the heap.
    let is_on_heap = lent.memory.heap > rest.memory.heap;
    assert!(lent.stream_buffers.lent > rest.stream_buffers.lent || is_on_heap, "{lent:?}");
    assert!(lent.stream_buffers.resident <= lent.memory.held, "{lent:?}");
    drop(lease);
    let returned = stats().await?;
    assert_eq!(returned.stream_buffers.lent, rest.stream_buffers.lent);
    Ok(())
}
