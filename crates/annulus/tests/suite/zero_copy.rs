//! Invariant 1 for zero-copy sends: their memory is returned with the notification, not with the
//! result, and is not touched before that, whatever happens to the stream and the runtime. The
//! simulated kernel checks this. On Linux, the loopback device copies, but memory whose bytes have
//! not been delivered stays in use as well.

use crate::common;
use annulus_skip::skip;

use annulus::net::{TcpStream, UnixStream};
use annulus::sim::{Fault, Faults, Link, Sim, run_on as simulate_on};
use annulus::stats::Counters;
use annulus::time::{Instant, sleep, timeout};
use annulus::{Builder, DriverChoice, Runtime, counters, spawn};
use annulus_ring::Features;
use common::{echo, error_of, half_pair, pair, pattern, receive, run_on};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Makes every send zero-copy.
fn lending() -> Builder {
    Runtime::builder().zero_copy_threshold(Some(1))
}

fn counted() -> Counters {
    counters().unwrap()
}

fn simulated<T>(sim: &Rc<Sim>, body: impl Future<Output = io::Result<T>>) -> T {
    simulate_on(sim, lending(), body).unwrap()
}

/// Runs a body on io_uring. Returns `None` if this kernel does not support zero-copy sends.
fn on_linux<T: 'static>(
    builder: Builder,
    body: impl Future<Output = io::Result<T>> + 'static,
) -> Option<T> {
    if !Features::detect().is_ok_and(|features| features.has("zero-copy sendmsg")) {
        skip!("no zero-copy sends here");
        return None;
    }
    Some(run_on(builder.driver(DriverChoice::Uring), body))
}

/// Invariant 19: a feature is on by default only if measurements show a benefit, and none do here.
#[test]
fn zero_copy_sends_are_off_by_default() {
    let sim = Sim::builder(1).build();
    let sends = async {
        let (mut client, mut server) = pair().await?;
        for length in [1, 100, 4096, 65_536] {
            client.send(pattern(length)).await?;
            receive(&mut server, length).await?;
        }
        io::Result::Ok(counted())
    };
    let counters = simulate_on(&sim, Runtime::builder(), sends).unwrap();
    assert_eq!(counters.zero_copy_sends, 0);
    let runtime = Runtime::builder().kernel(sim).build().unwrap();
    let info = runtime.driver();
    for name in ["zero-copy send", "zero-copy sendmsg"] {
        assert!(info.features.has(name), "the simulated kernel has no {name}");
        assert!(!info.in_use().any(|feature| feature.name == name), "{name}");
    }
}

#[test]
fn the_next_send_does_not_wait_for_memory_of_the_last_one() {
    // A notification takes up to 5 ms, and an echo hardly any time.
    let link = Link { latency: Duration::ZERO, ..Link::default() };
    let sim = Sim::builder(1).link(link).build();
    let took = simulated(&sim, async {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        let began = Instant::now();
        for _ in 0..200 {
            client.send(pattern(100)).await?;
            receive(&mut client, 100).await?;
        }
        assert!(counted().zero_copy_sends >= 400);
        Ok(Instant::now().duration_since(began))
    });
    assert!(took < Duration::from_millis(50), "200 questions took {took:?}");
}

#[test]
fn short_and_failed_sends_wait_for_their_memory_and_continue() {
    let faults = Faults::none().with(Fault::NoMemory, 30).with(Fault::Defer, 300);
    for seed in 0..30 {
        let faults = faults.clone().with(Fault::ShortWrite, 500);
        let sim = Sim::builder(seed).build();
        simulated(&sim, async {
            let (mut client, server) = pair().await?;
            sim.set_faults(faults);
            spawn(echo(server));
            let text = pattern(300_000);
            for piece in text.chunks(30_000) {
                client.send_vectored(piece.chunks(7000).map(<[u8]>::to_vec)).await?;
                assert!(receive(&mut client, piece.len()).await? == piece);
            }
            Ok(())
        });
        sim.check();
        assert_eq!(sim.leftovers(), [""; 0], "seed {seed}");
    }
}

#[test]
fn an_abort_leaves_the_memory_alone() {
    for seed in 0..50 {
        let sim = Sim::builder(seed).build();
        let late = simulated(&sim, async {
            for round in 0..10 {
                // Some of these sends find no space, and are cancelled.
                let (mut client, mut server) = pair().await?;
                let send = client.send(pattern(if round % 2 == 0 { 1000 } else { 1 << 20 }));
                _ = timeout(Duration::from_millis(1), send).await;
                if round % 3 == 0 {
                    server.recv().await?;
                }
                client.abort();
            }
            sleep(Duration::from_millis(10)).await;
            Ok(counted().late_completions)
        });
        assert_eq!(late, 0, "seed {seed}");
        sim.check();
        assert_eq!(sim.leftovers(), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_dropped_stream_ends_at_once_but_waits_for_its_memory() {
    let link = Link { latency: Duration::ZERO, ..Link::default() };
    let sim = Sim::builder(3).link(link).build();
    simulated(&sim, async {
        for _ in 0..50 {
            let (mut client, mut server) = pair().await?;
            client.send(pattern(10_000)).await?;
            drop(client);
            assert!(receive(&mut server, 10_000).await? == pattern(10_000));
            assert!(server.recv().await?.is_none(), "bytes arrived instead of the end");
        }
        Ok(())
    });
    assert_eq!(sim.leftovers(), [""; 0]);
}

#[test]
fn a_linger_shorter_than_the_notification_leaves_the_memory_alone() {
    for seed in 0..20 {
        let sim = Sim::builder(seed).build();
        let builder = lending().linger(Duration::from_micros(300));
        let late = simulate_on(&sim, builder, async {
            for _ in 0..20 {
                let (mut client, _server) = pair().await?;
                client.send(pattern(10_000)).await?;
                client.drain().await?;
                drop(client);
            }
            sleep(Duration::from_millis(20)).await;
            Ok::<_, io::Error>(counted().late_completions)
        });
        assert_eq!(late.unwrap(), 0, "seed {seed}");
        assert_eq!((sim.leftovers(), sim.open_descriptors()), (Vec::new(), 0), "seed {seed}");
    }
}

/// Fills a connection whose peer does not read, until no more bytes fit in its sockets' buffers.
async fn fill(stream: &mut TcpStream) -> io::Result<u64> {
    let before = counted().zero_copy_sends;
    loop {
        let full = timeout(Duration::from_millis(300), stream.send(vec![7; 20_000]));
        if full.await.is_err() {
            return Ok(counted().zero_copy_sends - before);
        }
    }
}

#[test]
fn the_linger_reclaims_memory_of_unread_bytes() {
    let builder = lending().linger(Duration::from_millis(50)).unsent_limit(100_000);
    on_linux(builder, async {
        let (mut stream, peer) = half_pair().await?;
        assert!(fill(&mut stream).await? > 0);
        drop(stream);
        assert_eq!(error_of(&peer).await?.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(counted().late_completions, 0);
        Ok(())
    });
}

#[test]
fn the_runtime_ends_in_time_if_memory_is_not_returned() {
    let builder =
        lending().shutdown_timeout(Duration::from_millis(50)).linger(Duration::from_secs(100));
    let kept = on_linux(builder, async {
        let (mut stream, peer) = half_pair().await?;
        assert!(fill(&mut stream).await? > 0);
        Ok((stream, peer, Instant::now()))
    });
    if let Some((stream, peer, began)) = kept {
        // `run_on` has ended the runtime: it waited for the grace period and reset the connection,
        // but did not wait for the linger.
        assert!(began.elapsed() < Duration::from_secs(20));
        drop((stream, peer));
    }
}

#[test]
fn bytes_are_copied_if_the_socket_cannot_send_without_a_copy() {
    let talk = || async {
        let (mut one, mut other) = UnixStream::pair()?;
        for round in 0..5 {
            one.send(pattern(1000 + round)).await?;
            assert!(receive_unix(&mut other, 1000 + round).await? == pattern(1000 + round));
        }
        Ok(counted().zero_copy_sends)
    };
    assert_eq!(
        simulated(&Sim::builder(1).build(), talk()),
        1,
        "the send was not attempted without a copy exactly once"
    );
    if let Some(sends) = on_linux(lending(), talk()) {
        assert_eq!(sends, 1, "the send was not attempted without a copy exactly once");
    }
}

async fn receive_unix(stream: &mut UnixStream, count: usize) -> io::Result<Vec<u8>> {
    let mut got = Vec::new();
    while got.len() < count {
        got.extend_from_slice(&stream.recv().await?.expect("the stream ended too early"));
    }
    Ok(got)
}

#[test]
fn a_connection_moves_only_once_its_memory_has_been_returned() {
    on_linux(lending(), async {
        let (mut client, mut server) = pair().await?;
        client.send(pattern(50_000)).await?;
        let parts = client.into_parts();
        let moved = async { parts.await.and_then(TcpStream::from_parts) };
        let moved = spawn(moved);
        assert!(receive(&mut server, 50_000).await? == pattern(50_000));
        let mut moved = moved.await.expect("the task panicked")?;
        let Counters { zero_copy_sends, zero_copy_copied, .. } = counted();
        assert_eq!(
            zero_copy_sends, zero_copy_copied,
            "not every send was reported as copied by the loopback"
        );
        moved.send("on").await?;
        assert!(receive(&mut server, 2).await? == b"on");
        Ok(())
    });
}

#[test]
fn small_sends_are_copied() {
    let sim = Sim::builder(1).build();
    let sends = simulate_on(&sim, Runtime::builder().zero_copy_threshold(Some(1000)), async {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        client.send(pattern(999)).await?;
        receive(&mut client, 999).await?;
        assert_eq!(counted().zero_copy_sends, 0);
        client.send(pattern(1000)).await?;
        receive(&mut client, 1000).await?;
        Ok::<_, io::Error>(counted().zero_copy_sends)
    });
    assert!((1..=2).contains(&sends.unwrap()), "the echo did not arrive in one or two pieces");
}
