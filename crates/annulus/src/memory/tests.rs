//! Invariant 23: small limits bound the bytes held, and the streams that hold most stop first.
#![cfg(feature = "sim")]

use super::*;
use crate::net::{TcpListener, TcpStream};
use crate::sim::{Link, Sim, run_on};
use crate::time::{sleep, timeout};
use crate::timers::Instant;
use crate::{Runtime, counters, spawn};
use annulus_sim::Random;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

const LIMIT_BYTES: usize = 16 << 20;
/// Maximum bytes per chunk that a peer sends.
const CHUNK_BYTES: usize = 4000;
/// Number of peers that send without reading.
const SILENT_PEERS: usize = 120;
const READING_PEERS: usize = 5;

fn held() -> usize {
    counters().expect("not in a runtime").memory_held as usize
}

async fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    Ok((client, server))
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

/// Sends forever and reads nothing.
async fn flood(mut stream: TcpStream, size: usize) -> io::Result<()> {
    loop {
        stream.send(vec![7; size]).await?;
    }
}

/// Sends pings, and panics if one is not answered within a minute.
async fn ping(mut stream: TcpStream, answered: Rc<Cell<u64>>) -> io::Result<()> {
    loop {
        stream.send("ping").await?;
        let mut left = 4;
        while left > 0 {
            let answer = timeout(Duration::from_secs(60), stream.recv()).await;
            left -= answer
                .expect("a ping was not answered in time")?
                .expect("the stream ended too early")
                .len();
        }
        answered.set(answered.get() + 1);
        sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the maximum number of bytes held while a crowd floods the runtime. Checks that every
/// reader makes progress until the end.
async fn most_held(seed: u64) -> io::Result<usize> {
    let mut random = Random::new(seed);
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    let mut tasks = Vec::new();
    for _ in 0..SILENT_PEERS {
        let (client, server) = pair(&listener).await?;
        tasks.push(spawn(flood(client, 1 + random.below(CHUNK_BYTES as u64) as usize)));
        tasks.push(spawn(echo(server)));
    }
    let answered: Vec<_> = (0..READING_PEERS).map(|_| Rc::new(Cell::new(0))).collect();
    for count in &answered {
        let (client, server) = pair(&listener).await?;
        tasks.push(spawn(ping(client, count.clone())));
        tasks.push(spawn(echo(server)));
    }
    let mut most = 0;
    for _ in 0..600 {
        sleep(Duration::from_millis(1)).await;
        most = most.max(held());
    }
    let before: Vec<u64> = answered.iter().map(|count| count.get()).collect();
    let turns = counters().unwrap_or_default().enters;
    sleep(Duration::from_secs(2)).await;
    assert!(answered.iter().zip(&before).all(|(now, before)| now.get() > *before), "seed {seed}");
    let turns = counters().unwrap_or_default().enters - turns;
    let pings = answered.iter().map(|count| count.get()).sum::<u64>() - before.iter().sum::<u64>();
    assert!(
        turns < 20 * pings,
        "seed {seed}: {turns} turns for {pings} pings: the loop does not rest"
    );
    for task in &mut tasks {
        task.abort();
    }
    drop(tasks);
    Ok(most)
}

fn on_seed(seed: u64, limit: Option<MemoryLimit>) -> usize {
    let link =
        Link { latency: Duration::from_micros(200), jitter: Duration::ZERO, ..Link::default() };
    let sim = Sim::builder(seed).link(link).build();
    run_on(&sim, Runtime::builder().memory_limit(limit), most_held(seed)).unwrap()
}

/// Checks that the bytes held stay within the limit, except for the allowed overshoot, and that
/// nothing is held once the runtime has ended.
fn holds_at_most(bytes: usize, seed: u64) {
    // Both sides of each connection are streams of this runtime.
    let streams = 2 * (SILENT_PEERS + READING_PEERS);
    let overshoot = MIN_RECEIVE_BUDGET_BYTES + streams * (4096 + CHUNK_BYTES + 64);
    let limit = MemoryLimit::new(bytes);
    let most = on_seed(seed, Some(limit.clone()));
    assert!(
        most > bytes / 2,
        "seed {seed}: only {most} of {bytes} bytes were held, so the limit was not tested"
    );
    assert!(most <= bytes + overshoot, "seed {seed}: {most} of {bytes} bytes");
    let left = (limit.held(), limit.streams_paused());
    assert_eq!(left, (0, 0), "seed {seed}: the runtime has ended");
}

/// With this limit, most streams may hold more than `MIN_STREAM_BYTES`.
#[test]
fn a_large_limit_holds_and_every_reader_makes_progress() {
    holds_at_most(LIMIT_BYTES, 0);
}

/// The seed has no peer that sends single bytes, which would take half a million turns to fill the
/// kernel's buffers.
#[test]
fn a_medium_limit_holds_and_every_reader_makes_progress() {
    holds_at_most(4 << 20, 3);
}

/// With this limit, no stream may hold more than `MIN_STREAM_BYTES`.
#[test]
fn a_small_limit_holds_and_every_reader_makes_progress() {
    holds_at_most(1 << 20, 2);
}

#[test]
fn without_a_limit_the_crowd_holds_more() {
    let unlimited = on_seed(0, None);
    assert!(
        unlimited > 2 * LIMIT_BYTES,
        "only {unlimited} bytes were held without a limit, so the limit was not tested"
    );
}

#[test]
fn streams_that_hold_most_are_paused_first_and_resume_with_free_memory() {
    let sim = Sim::builder(1).build();
    let bounds = |builder: crate::Builder| builder.unread_limit(1 << 20).unsent_limit(1 << 20);
    let builder = bounds(Runtime::builder()).memory_limit(Some(MemoryLimit::new(4 << 20)));
    let ran = run_on(&sim, builder, async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let mut readers = Vec::new();
        for kib in [900, 500, 300, 200, 100, 40, 20, 10] {
            for _ in 0..3 {
                let (mut client, mut server) = pair(&listener).await?;
                client.send("x").await?;
                server.recv().await?;
                let writer = spawn(async move {
                    client.send(vec![7; kib << 10]).await?;
                    client.drain().await?;
                    io::Result::Ok(client)
                });
                readers.push((server, writer, kib << 10));
            }
        }
        sleep(Duration::from_secs(10)).await;
        // No complete transfer is larger than one that was paused.
        let (whole, part): (Vec<_>, Vec<_>) =
            readers.iter().partition(|(_, writer, _)| writer.is_finished());
        let most =
            whole.iter().map(|(_, _, bytes)| *bytes).max().expect("no transfer was complete");
        let least =
            part.iter().map(|(_, _, bytes)| *bytes).min().expect("every transfer was complete");
        assert!(most <= least, "{most} bytes arrived whole, but {least} did not");
        assert!(counters().unwrap_or_default().memory_pauses > 0);
        // Everything arrives once it is read.
        for (mut server, writer, mut left) in readers {
            while left > 0 {
                let lease = timeout(Duration::from_secs(60), server.recv()).await;
                left -= lease
                    .expect("the stream did not resume")?
                    .expect("the stream ended too early")
                    .len();
            }
            writer.await.expect("the task panicked")?;
        }
        io::Result::Ok(())
    });
    ran.unwrap();
}

#[test]
fn the_allowance_falls_with_free_memory_but_not_below_the_minimum() {
    let mut last = usize::MAX;
    for total in (0..=LIMIT_BYTES).step_by(LIMIT_BYTES / 64) {
        let now = allowance(LIMIT_BYTES, total);
        assert!(now <= last && now >= MIN_STREAM_BYTES);
        last = now;
    }
    assert_eq!((last, allowance(LIMIT_BYTES, LIMIT_BYTES + 1)), (MIN_STREAM_BYTES, 0));
    assert_eq!(
        budget(LIMIT_BYTES, LIMIT_BYTES),
        ReceiveBudget { bytes: MIN_RECEIVE_BUDGET_BYTES, is_tight: true }
    );
    assert!(!budget(LIMIT_BYTES, LIMIT_BYTES / 2).is_tight);
}

#[test]
fn an_unacceptable_limit_is_reported_with_the_bound() {
    let most = machine::memory().0.to_string();
    for (bytes, bound) in [(0, "1048576"), (1000, "1048576"), (usize::MAX, most.as_str())] {
        let limit = MemoryLimit::new(bytes);
        let error = Runtime::builder().memory_limit(Some(limit.clone())).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(&format!("of {bytes} bytes")) && text.contains(bound), "{text}");
        assert_eq!(limit.check().unwrap_err().to_string(), text);
    }
    let accepted = [MemoryLimit::MIN, machine::memory().0].map(MemoryLimit::new);
    for limit in accepted.map(Some).into_iter().chain([None]) {
        let runtime = Runtime::builder().memory_limit(limit.clone()).build().unwrap();
        let given = limit.map(|limit| limit.bytes());
        assert_eq!(runtime.handle().memory_limit().map(|limit| limit.bytes()), given);
    }
    let default = Runtime::new().unwrap().handle().memory_limit().expect("there is no default");
    assert_eq!(default.bytes(), MemoryLimit::of_process().bytes());
}

/// A flood with a slow reader, followed by a minute in which a few bytes arrive each second.
#[test]
fn memory_of_a_flood_is_returned_within_a_minute_of_light_load() {
    let sim = Sim::builder(1).build();
    let mut runtime = Runtime::builder().kernel(sim.clone()).build().unwrap();
    let resident =
        |runtime: &Runtime| runtime.core().borrow().unwrap().state.driver.resident_bytes();
    let flood = async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let mut client = TcpStream::connect("127.0.0.1:7000").await?;
        let (mut server, _) = listener.accept().await?;
        let writer = spawn(async move {
            client.send(vec![7; 4 << 20]).await?;
            client.drain().await?;
            io::Result::Ok(client)
        });
        let (mut held, mut left) = (Vec::new(), 4 << 20);
        while left > 0 {
            let lease = server.recv().await?.expect("the stream ended too early");
            left -= lease.len();
            held.push(lease);
        }
        io::Result::Ok((writer.await.expect("the task panicked")?, server))
    };
    let (mut client, mut server) = runtime.block_on(flood).unwrap();
    let flooded = resident(&runtime);
    assert!(flooded >= 2 << 20, "{flooded} bytes");
    let light = async {
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            client.send("ping").await?;
            server.recv().await?;
        }
        io::Result::Ok(())
    };
    runtime.block_on(light).unwrap();
    let left = resident(&runtime);
    assert!(left <= 256 * 1024, "{left} of {flooded} bytes are left");
}

/// Number of bytes that the peer sends to the first stream.
const SENT_BYTES: usize = 64 << 10;

/// Queues `held` unsent bytes on one stream and `hoarded` on another; their peers do not read.
/// Checks that the first stream still receives everything that its peer sends.
fn receives(held: usize, hoarded: usize) {
    let sim = Sim::builder(1).build();
    let limit = MemoryLimit::new(LIMIT_BYTES);
    // With a small bound, the receive is armed again after few bytes.
    let builder = Runtime::builder().unread_limit(4096).unsent_limit(1 << 20);
    let ran = run_on(&sim, builder.memory_limit(Some(limit.clone())), async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let (mut client, server) = pair(&listener).await?;
        let (mut receiving, mut sending) = server.into_split();
        sending.send(vec![7; held]).await?;
        let (_other, mut hoarder) = pair(&listener).await?;
        let hoarder = spawn(async move { hoarder.send(vec![7; hoarded]).await });
        sleep(Duration::from_millis(1)).await;
        client.send(vec![1; SENT_BYTES]).await?;
        let mut left = SENT_BYTES;
        while left > 0 {
            let received = timeout(Duration::from_secs(1), receiving.recv()).await;
            let lease = received
                .unwrap_or_else(|_| panic!("{held} bytes held: {left} bytes did not arrive"))?;
            left -= lease.expect("the stream ended too early").len();
        }
        let now = counters().unwrap_or_default();
        assert_eq!(limit.streams_paused() as u64, now.streams_paused);
        hoarder.abort();
        io::Result::Ok(())
    });
    ran.unwrap();
}

#[test]
fn unsent_bytes_do_not_keep_a_stream_from_receiving() {
    receives(400 << 10, LIMIT_BYTES / 8 * 7);
    // The allowance falls a little, and rises by less than a quarter.
    for extra in (0..400 << 10).step_by(50 << 10) {
        receives(570 << 10, LIMIT_BYTES / 2 + extra);
    }
}

#[test]
fn once_half_of_the_limit_is_free_the_initial_values_apply() {
    let mut memory = Memory::new(
        Some(MemoryLimit::new(LIMIT_BYTES)),
        StreamBounds { receive: 1 << 20, send: 1 << 20 },
    );
    let first = (memory.allowance, memory.send_bound);
    memory.allow(LIMIT_BYTES + 1, LIMIT_BYTES + 1);
    assert_eq!(memory.allowance, 0);
    memory.allow(0, 0);
    assert_eq!(((memory.allowance, memory.send_bound), memory.is_tight()), (first, false));
}

#[test]
fn bounds_are_lowered_above_the_mark_and_rise_at_half_of_it() {
    let most = StreamBounds { receive: 1 << 20, send: 8192 };
    for (limit, mark) in [
        (None, LOWERING_MARK_BYTES),
        (Some(LIMIT_BYTES), LOWERING_MARK_BYTES.min(LIMIT_BYTES / 2)),
        (Some(1 << 20), 1 << 19),
    ] {
        let mut memory = Memory::new(limit.map(MemoryLimit::new), most);
        let fell = |memory: &mut Memory, in_use: usize| {
            // No other runtime holds anything, so only the bytes in use here matter.
            let changed = memory.update_held(in_use).map(|total| memory.allow(total, in_use));
            let have_fallen = changed.is_some_and(|changed| changed.have_fallen);
            (have_fallen, memory.recv_bound, memory.waiting_bound)
        };
        let (usual, lowered) = ((1 << 20, 8192), (16 << 10, 4096));
        let steps = [
            (mark, false, usual),
            (mark + 1, true, lowered),
            (mark, false, lowered),
            (mark / 2 + 1, false, lowered),
            (mark / 2, false, usual),
            (mark, false, usual),
            (mark + 1, true, lowered),
            (0, false, usual),
        ];
        for (in_use, falls, (receive, send)) in steps {
            let now = fell(&mut memory, in_use);
            assert_eq!(now, (falls, receive, send), "{limit:?}: {in_use} bytes in use");
        }
    }
}

/// Memory is freed without an event, and the sender that may continue runs before the loop sleeps.
#[test]
fn a_resumed_sender_runs_before_the_loop_sleeps() {
    let sim = Sim::builder(1).build();
    let builder = Runtime::builder()
        .stream_buffer_size(4096)
        .stream_buffer_count(4)
        .memory_limit(Some(MemoryLimit::new(1 << 20)));
    let ran = run_on(&sim, builder, async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let (mut client, mut server) = pair(&listener).await?;
        let writer = spawn(async move {
            client.send(vec![7; 700 << 10]).await?;
            client.drain().await
        });
        let (mut leases, mut left) = (Vec::new(), 700 << 10);
        while left > 0 {
            let lease = server.recv().await?.expect("the stream ended too early");
            left -= lease.len();
            leases.push(lease);
        }
        writer.await.expect("the task panicked")?;
        let (mut sender, _silent) = pair(&listener).await?;
        let went = Rc::new(tokio::sync::Notify::new());
        let _flood = spawn({
            let went = went.clone();
            async move {
                while sender.send(vec![7; CHUNK_BYTES]).await.is_ok() {
                    went.notify_one();
                }
            }
        });
        sleep(Duration::from_secs(1)).await;
        assert!(counters().unwrap_or_default().memory_pauses > 0, "nothing is paused");
        // Takes the permit that earlier sends have stored.
        went.notified().await;
        drop(leases);
        let dropped = Instant::now();
        went.notified().await;
        // System calls take a few microseconds of virtual time.
        let waited = dropped.elapsed();
        assert!(waited < Duration::from_millis(1), "the loop slept for {waited:?} first");
        io::Result::Ok(())
    });
    ran.unwrap();
}

/// A stream with nothing queued must not wait for room, however many bytes are held: it has no send
/// that could end and wake it.
#[test]
fn a_stream_with_nothing_queued_can_write_beyond_the_limit() {
    let sim = Sim::builder(1).build();
    let builder = Runtime::builder().memory_limit(Some(MemoryLimit::new(1 << 20)));
    let ran = run_on(&sim, builder, async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let (mut full, _unread) = pair(&listener).await?;
        let _hoarder = spawn(async move {
            full.send(vec![7; 8 << 20]).await?;
            full.drain().await
        });
        crate::task::yield_now().await;
        assert!(held() > 1 << 20);
        let (mut writer, mut reader) = pair(&listener).await?;
        let written = timeout(Duration::from_secs(60), writer.write(&[7; 100_000])).await;
        let count = written.expect("the write did not end")?;
        let mut received = 0;
        while received < count {
            received += reader.recv().await?.expect("the stream ended too early").len();
        }
        io::Result::Ok(())
    });
    ran.unwrap();
}
