//! Invariants 4 to 9: one receive per stream, bounded memory, no starving streams, and back
//! pressure from full queues.

use crate::common;

use annulus::net::{ListenOptions, TcpListener, TcpStream};
use annulus::{Runtime, counters, spawn};
use common::{
    echo, echo_server, half_pair, pair, pattern, receive, receives_are_armed_once, run, run_on,
};
use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn many_messages_take_one_receive() {
    let receives = if receives_are_armed_once() { 0 } else { 2000 };
    run(async move {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        client.send("x").await?;
        receive(&mut client, 1).await?;
        let (before, began) = (counters().unwrap(), annulus::time::Instant::now());
        for _ in 0..1000 {
            client.send("x").await?;
            receive(&mut client, 1).await?;
        }
        let after = counters().unwrap();
        let sends = 2000;
        // Two streams of 1000 bytes each: no receive reaches its limit. The timer that trims the
        // pool starts every ten seconds.
        let timers = began.elapsed().as_secs().div_ceil(10);
        let others = after.sqes - before.sqes - sends - receives;
        assert!(others <= timers, "{others} other entries were submitted");
        Ok(())
    });
}

#[test]
fn unread_bytes_are_bounded_and_none_is_lost() {
    let bound = 64 * 1024;
    run_on(Runtime::builder().unread_limit(bound), async move {
        let (mut stream, mut peer) = half_pair().await?;
        let sent = pattern(32 << 20);
        let expected = sent.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent));
        // The first bytes arm the receive; then no task reads for 50 ms.
        let first = stream.recv().await?.unwrap();
        for _ in 0..50 {
            annulus::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!writer.is_finished(), "32 MiB were written without a reader");
        let mut got = first.to_vec();
        let mut held = Vec::new();
        while got.len() < expected.len() {
            let lease = stream.recv().await?.unwrap();
            assert!(lease.len() <= bound);
            got.extend_from_slice(&lease);
            // Holding the first 50 leases must not stop the stream from receiving.
            held.push(lease);
            held.truncate(50);
        }
        writer.join().unwrap()?;
        assert!(got == expected);
        Ok(())
    });
}

#[test]
fn leases_held_never_keep_a_stream_from_receiving() {
    // 8 buffers in all, and each of 20 streams holds 20 leases.
    run_on(Runtime::builder().stream_buffer_size(4096).stream_buffer_count(8), async {
        let mut held = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(pair().await?);
        }
        for round in 0..20u8 {
            for (client, server) in &mut streams {
                client.send(vec![round; 100]).await?;
                let lease = server.recv().await?.unwrap();
                assert!(lease.iter().all(|&byte| byte == round));
                held.push(lease);
            }
        }
        assert_eq!(held.len(), 400);
        assert!(counters().unwrap().heap_receives > 0, "the pool was never short");
        drop(held);
        Ok(())
    });
}

#[test]
fn a_pool_far_too_small_serves_every_stream() {
    run_on(Runtime::builder().stream_buffer_size(4096).stream_buffer_count(2), async {
        let address = echo_server()?;
        let clients: Vec<_> = (0..30)
            .map(|n| {
                spawn(async move {
                    let sent = pattern(50_000 + n);
                    let mut client = TcpStream::connect(address).await?;
                    client.send(sent.clone()).await?;
                    assert!(receive(&mut client, sent.len()).await? == sent);
                    std::io::Result::Ok(())
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap()?;
        }
        assert!(counters().unwrap().enobufs > 0, "the pool never ran out of buffers");
        Ok(())
    });
}

#[test]
fn tiny_queues_only_cause_back_pressure() {
    run_on(Runtime::builder().sq_entries(2).cq_entries(4), async {
        let address = echo_server()?;
        let clients: Vec<_> = (0..100)
            .map(|n| {
                spawn(async move {
                    let mut client = TcpStream::connect(address).await?;
                    for round in 0..20 {
                        let sent = pattern(10 + n + round);
                        client.send(sent.clone()).await?;
                        assert!(receive(&mut client, sent.len()).await? == sent);
                    }
                    std::io::Result::Ok(())
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap()?;
        }
        let counters = counters().unwrap();
        assert!(counters.queue_full > 0 || is_on_epoll());
        Ok(())
    });
}

/// Returns true on epoll, where no submission queue can be full.
fn is_on_epoll() -> bool {
    std::env::var("ANNULUS_DRIVER").is_ok_and(|driver| driver == "epoll")
}

#[test]
fn queued_sends_arrive_in_order() {
    run(async {
        let (stream, mut peer) = half_pair().await?;
        let expected = pattern(6 << 20);
        let sent = expected.clone();
        let (mut receiving, mut sending) = stream.into_split();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 6 << 20];
            peer.read_exact(&mut got).map(|()| got)
        });
        for chunk in sent.chunks(7919) {
            sending.send(chunk.to_vec()).await?;
        }
        sending.drain().await?;
        drop(sending);
        assert!(receiving.recv().await?.is_none());
        assert!(reader.join().unwrap()? == expected);
        Ok(())
    });
}

#[test]
fn connections_in_a_burst_are_all_accepted() {
    run(async {
        let listener = ListenOptions::new().backlog(1024).bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let peers: Vec<_> =
            (0..300).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let mut accepted = Vec::new();
        for _ in &peers {
            accepted.push(listener.accept().await?);
        }
        let mut seen: Vec<_> = accepted.iter().map(|(_, peer)| *peer).collect();
        let mut expected: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
        Ok(())
    });
}

#[test]
fn a_pool_at_its_limit_is_shared_fairly() {
    run_on(Runtime::builder().stream_buffer_size(4096).stream_buffer_count(4), async {
        let enough = 2 << 20;
        let received: Vec<_> = (0..12).map(|_| Rc::new(Cell::new(0))).collect();
        for count in &received {
            let (mut stream, mut flooder) = half_pair().await?;
            std::thread::spawn(move || while flooder.write_all(&[1; 65_536]).is_ok() {});
            let count = count.clone();
            spawn(async move {
                while let Ok(Some(lease)) = stream.recv().await {
                    count.set(count.get() + lease.len());
                }
            });
        }
        while received.iter().any(|count| count.get() < enough) {
            let most = received.iter().map(|count| count.get()).max().unwrap();
            assert!(most < 50 * enough, "starved: {received:?}");
            annulus::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    });
}

#[test]
fn dropped_accepts_leave_nothing_behind() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        for _ in 0..1000 {
            assert!(common::touch(listener.accept()).is_none());
        }
        let peer = std::net::TcpStream::connect(address)?;
        let (_stream, from) = listener.accept().await?;
        assert_eq!(from, peer.local_addr()?);
        Ok(())
    });
}
