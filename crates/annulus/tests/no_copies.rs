//! Received bytes are shown where the kernel has put them, and copied once into the caller's
//! memory.

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::{allocations, held, most_held};
use annulus::io::{AsyncRecv, AsyncSend, AsyncStream};
use annulus::net::UnixStream;
use annulus::sim::Sim;
use annulus::{Builder, DriverChoice, Runtime};
use annulus_skip::skip;
use common::{pair, run_on};
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::pin::Pin;
use tokio_util::compat::TokioAsyncReadCompatExt;

/// Runs a body over TCP and over Unix sockets, on each driver that works here and on the simulated
/// kernel.
fn on_all<F: Future<Output = io::Result<()>>>(
    body: impl Fn(Box<dyn AsyncStream>, Box<dyn AsyncStream>) -> F,
) {
    let mut builders: Vec<Box<dyn Fn() -> Builder>> = vec![
        Box::new(|| Runtime::builder().driver(DriverChoice::Epoll)),
        Box::new(|| Runtime::builder().kernel(Sim::builder(1).build())),
    ];
    if annulus_ring::Features::detect().is_ok() {
        builders.push(Box::new(|| Runtime::builder().driver(DriverChoice::Uring)));
    } else {
        skip!("io_uring is blocked here");
    }
    for builder in builders {
        run_on(builder(), async {
            let (client, server) = pair().await?;
            body(Box::new(client), Box::new(server)).await
        });
        run_on(builder(), async {
            let (client, server) = UnixStream::pair()?;
            body(Box::new(client), Box::new(server)).await
        });
    }
}

/// Returns the address at which the next bytes are shown.
async fn shown(stream: &mut impl AsyncRecv, expected: &[u8]) -> io::Result<*const u8> {
    let shown = AsyncRecv::fill_at_least(stream, expected.len()).await?;
    assert_eq!(shown, expected);
    Ok(shown.as_ptr())
}

#[test]
fn shown_bytes_are_in_the_buffer_that_the_kernel_filled() {
    on_all(|mut client, mut server| async move {
        client.write_all(b"0123456789").await?;
        let address = shown(&mut server, b"0123456789").await?;
        server.consume(2);
        assert_eq!(shown(&mut server, b"23456789").await?.addr(), address.addr() + 2);
        let part = server.recv_exact(3).await?;
        assert_eq!((&*part, part.as_ptr().addr()), (&b"234"[..], address.addr() + 2));
        drop(part);
        server.consume(5);
        client.write_all(b"whole").await?;
        let address = shown(&mut server, b"whole").await?;
        let lease = server.recv().await?.expect("the stream ended too early");
        assert_eq!(lease.as_ptr(), address);
        // Only a lease on a pool buffer is shared without a copy.
        assert_eq!(lease.into_shared().as_ptr(), address, "the lease is not on a pool buffer");
        Ok(())
    });
}

#[test]
fn both_foreign_traits_show_the_buffer_of_the_kernel() {
    run_on(Runtime::builder(), async {
        let (mut client, mut server) = pair().await?;
        client.write_all(b"0123456789").await?;
        let address = shown(&mut server, b"0123456789").await?;
        let stream = &mut server;
        poll_fn(|cx| {
            let mut stream = TokioAsyncReadCompatExt::compat(&mut *stream);
            let by_futures = futures_util::AsyncBufRead::poll_fill_buf(Pin::new(&mut stream), cx);
            by_futures.map_ok(|shown| assert_eq!(shown.as_ptr(), address))
        })
        .await?;
        poll_fn(|cx| {
            let by_tokio = tokio::io::AsyncBufRead::poll_fill_buf(Pin::new(stream), cx);
            by_tokio.map_ok(|shown| assert_eq!(shown.as_ptr(), address))
        })
        .await
    });
}

/// The one copy is from the buffer that the kernel filled into the caller's memory.
#[test]
fn a_read_copies_once() {
    on_all(|mut client, mut server| async move {
        for round in 0..200 {
            client.write_all(&[round; 100]).await?;
            let address = shown(&mut server, &[round; 100]).await?;
            let before = allocations();
            let mut read = [0; 40];
            server.read_exact(&mut read).await?;
            assert_eq!((read, allocations() - before), ([round; 40], 0));
            let rest = shown(&mut server, &[round; 60]).await?;
            assert_eq!(rest.addr(), address.addr() + 40, "the unread bytes were moved");
            server.consume(60);
        }
        Ok(())
    });
}

#[test]
fn showing_and_consuming_allocate_nothing() {
    on_all(|mut client, mut server| async move {
        for round in 0..200 {
            let before = allocations();
            client.write_all(&[round; 100]).await?;
            let mut left = 100;
            while left > 0 {
                let there = server.fill_buf().await?.len();
                server.consume(there);
                left -= there;
            }
            assert!(round < 100 || allocations() == before, "round {round}");
        }
        Ok(())
    });
}

/// A long line that arrives in small pieces is copied a few times in total, not once per piece.
#[test]
fn gathered_bytes_grow_by_doubling() {
    on_all(|mut client, mut server| async move {
        client.write_all(&[7; 100]).await?;
        server.fill_at_least(100).await?;
        let before = allocations();
        for pieces in 2..=1000 {
            client.write_all(&[7; 100]).await?;
            assert_eq!(server.fill_at_least(100 * pieces).await?.len(), 100 * pieces);
        }
        let made = allocations() - before;
        assert!(made <= 50, "{made} allocations for 999 pieces");
        Ok(())
    });
}

/// Bytes of a receive without a pool buffer.
const RECEIVE: isize = 4096;
/// Number of buffers in the pool.
const BUFFERS: u32 = 2;

/// Lets the loop receive the bytes that have arrived, and start the receives of waiting tasks.
async fn turns() {
    for _ in 0..1000 {
        annulus::task::yield_now().await;
    }
}

/// Many streams wait while all buffers hold unread bytes. Then bytes arrive on all streams at once.
async fn receive_without_buffers(streams: usize) -> io::Result<()> {
    let pair = || {
        let (client, server) = std::os::unix::net::UnixStream::pair()?;
        io::Result::Ok((client, UnixStream::from_std(server)?))
    };
    let mut unread = Vec::new();
    for _ in 0..BUFFERS {
        let (mut client, mut server) = pair()?;
        client.write_all(b"first")?;
        server.recv().await?;
        unread.push((client, server));
    }
    unread.iter_mut().try_for_each(|(client, _)| client.write_all(b"unread"))?;
    turns().await;
    let (mut writers, mut tasks) = (Vec::new(), Vec::new());
    let before = held();
    for _ in 0..streams {
        let (client, mut server) = pair()?;
        writers.push(client);
        tasks.push(annulus::spawn(
            async move { server.recv().await.map(|lease| lease.unwrap().len()) },
        ));
    }
    turns().await;
    let waiting = held() - before;
    assert!(waiting < streams as isize * RECEIVE / 4, "{waiting} bytes while nothing arrives");
    most_held();
    writers.iter_mut().try_for_each(|writer| writer.write_all(b"0123456789"))?;
    for task in tasks {
        assert_eq!(task.await.expect("the task panicked")?, 10);
    }
    let most = most_held() - before;
    assert!(most < streams as isize * RECEIVE / 2, "{most} bytes when everything arrives at once");
    drop(unread);
    Ok(())
}

#[test]
fn streams_without_buffers_hold_memory_for_only_a_few_receives() {
    let with_pool =
        |builder: Builder| builder.stream_buffer_size(RECEIVE as u32).stream_buffer_count(BUFFERS);
    run_on(with_pool(Runtime::builder().driver(DriverChoice::Epoll)), receive_without_buffers(200));
    if annulus_ring::Features::detect().is_ok() {
        run_on(
            with_pool(Runtime::builder().driver(DriverChoice::Uring)),
            receive_without_buffers(200),
        );
    } else {
        skip!("io_uring is blocked here");
    }
}
