//! Too little of something: readers, buffers, queue entries.

use crate::common::{echo, pair, pattern, receive, touch};
use crate::mode::Mode;
use annulus::net::{SendHalf, TcpListener, TcpStream};
use annulus::time::{sleep, timeout};
use annulus::{Builder, Counters, spawn};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// More than both kernels' socket buffers and our bounds together.
const PLENTY: usize = 32 << 20;

/// Writes `pattern(PLENTY)` from where it stands for as long as that goes on without waiting long, and tells how far it
/// came.
async fn fill(sending: &mut SendHalf, text: &[u8]) -> io::Result<usize> {
    let mut place = 0;
    let patience = Duration::from_millis(200);
    while place < text.len() {
        let end = text.len().min(place + 10_000);
        let write = poll_fn(|cx| sending.poll_write(cx, &text[place..end]));
        match timeout(patience, write).await {
            Ok(written) => place += written?,
            Err(_elapsed) => break,
        }
    }
    Ok(place)
}

pub(crate) async fn a_slow_reader_holds_the_writer_up() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let (_receiving, mut sending) = client.split();
    let text = pattern(PLENTY);
    // One byte arms the receive; then nobody reads.
    sending.send(vec![0]).await?;
    receive(&mut server, 1).await?;
    let taken = fill(&mut sending, &text).await?;
    assert!(taken > 0 && taken < PLENTY, "{taken} bytes were taken, and nobody read");
    drop(sending);
    let mut place = 0;
    while let Some(lease) = server.recv().await? {
        assert!(text[place..].starts_with(&lease), "after {place} bytes");
        place += lease.len();
    }
    assert_eq!(place, taken);
    Ok(())
}

/// Small, so that many of each fit what a socket holds.
const PAGE: u32 = 4096;

pub(crate) fn pages(builder: Builder) -> Builder {
    builder.recv_bound(PAGE).recv_buffers(PAGE, 64)
}

/// What was received and not read is counted by polls in a row, between which nothing can arrive.
pub(crate) async fn what_is_not_read_is_bounded() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let (_receiving, mut sending) = client.split();
    sending.send(vec![0]).await?;
    receive(&mut server, 1).await?;
    fill(&mut sending, &pattern(PLENTY)).await?;
    let mut unread = 0;
    while let Some(lease) = touch(server.recv()) {
        unread += lease?.expect("no end yet").len();
    }
    let most = 2 * PAGE as usize;
    assert!(
        unread > 0 && unread <= most,
        "{unread} bytes unread, above the bound and a buffer: {most}"
    );
    Ok(())
}

/// Clients that each send a text and hear it again.
async fn crowd(clients: usize, len: usize, rounds: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream));
        }
    });
    let visit = move |number: usize| async move {
        let sent = pattern(len + number);
        let mut client = TcpStream::connect(address).await?;
        for _ in 0..rounds {
            let (text, expected) = (sent.clone(), sent.len());
            client.send(text).await?;
            assert!(receive(&mut client, expected).await? == sent, "connection {number}");
        }
        io::Result::Ok(())
    };
    let visits: Vec<_> = (0..clients).map(|number| spawn(visit(number))).collect();
    for visit in visits {
        visit.await.expect("a visit without panic")?;
    }
    Ok(())
}

pub(crate) async fn a_pool_of_two_starves_nobody() -> io::Result<()> {
    crowd(30, 900, 20).await
}

pub(crate) fn ran_dry(mode: Mode, counters: &Counters) {
    // Who asks before he receives finds a buffer, since few others hold one meanwhile.
    let dry = counters.enobufs > 0 || mode.asks_first() && counters.heap_receives > 0;
    assert!(mode.is_epoll() || dry, "{mode:?}: {counters:?}");
}

/// Writers that never stop, and readers that each want their share.
pub(crate) async fn a_pool_of_eight_is_shared_fairly() -> io::Result<()> {
    let enough = 100_000;
    let heard: Vec<_> = (0..12).map(|_| Rc::new(Cell::new(0))).collect();
    for count in &heard {
        let count = count.clone();
        let (mut flooder, mut reader) = pair().await?;
        spawn(async move { while flooder.send(vec![1; 8192]).await.is_ok() {} });
        spawn(async move {
            while let Ok(Some(lease)) = reader.recv().await {
                count.set(count.get() + lease.len());
            }
        });
    }
    while heard.iter().any(|count| count.get() < enough) {
        let most = heard.iter().map(|count| count.get()).max().unwrap_or_default();
        assert!(most < 50 * enough, "starved: {heard:?}");
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(crate) async fn held_leases_stop_nobody() -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(pair().await?);
    }
    let mut held = Vec::new();
    for round in 0..20u8 {
        for (client, server) in &mut streams {
            client.send(vec![round; 100]).await?;
            let mut left = 100;
            while left > 0 {
                let lease = server.recv().await?.expect("no end yet");
                left -= lease.len();
                held.push((round, lease));
            }
        }
    }
    assert!(held.iter().all(|(round, lease)| lease.iter().all(|byte| byte == round)));
    Ok(())
}

pub(crate) fn took_the_heap(mode: Mode, counters: &Counters) {
    assert!(counters.heap_receives > 0, "{mode:?}: {counters:?}");
}

pub(crate) async fn tiny_queues_serve_two_hundred() -> io::Result<()> {
    crowd(200, 10, 10).await
}

pub(crate) fn overflowed(mode: Mode, counters: &Counters) {
    let both = counters.overflows > 0 && counters.queue_full > 0;
    assert!(mode.is_epoll() || both, "{mode:?}: {counters:?}");
}
