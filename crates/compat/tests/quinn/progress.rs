//! Transfers make progress on any network and kernel, with any runtime settings: no wake is lost.

use crate::quinn::common::*;
use annulus::sim::{Fault, Faults, Link, Random, Sim, check, run_on};
use annulus::time::{Instant, sleep, timeout};
use annulus::{Builder, Runtime};
use quinn::{Connection, TransportConfig};
use std::cell::Cell;
use std::io;
use std::time::Duration;

/// Time without progress after which a transfer counts as stalled. It is much longer than quinn
/// needs to retransmit if one in five datagrams is lost.
const MAX_STALL: Duration = Duration::from_secs(60);
/// Number of bytes of the larger stream of a transfer, in each direction.
const STREAM_BYTES: usize = 300_000;

/// Returns a lossy network with small buffers.
fn link(random: &mut Random) -> Link {
    let link = Link::any(random);
    Link {
        receive_buffer: random.pick(&[16_384, 32_768, 131_072]),
        send_buffer: random.pick(&[4_096, 16_384, 131_072]),
        ..link
    }
}

/// Picks limits that are often small, so that operations fail, wait and restart.
fn settings(random: &mut Random) -> Builder {
    Runtime::builder()
        .task_budget(random.pick(&[1, 2, 7, 128]))
        .event_interval(random.pick(&[1, 5, 61]))
        .unsent_limit(random.pick(&[1, 3_000, 30_000, 262_144]))
        .sq_entries(random.pick(&[1, 8, 256]))
        .cq_entries(random.pick(&[2, 64, 4096]))
        .datagram_buffer_size(69_632)
        .datagram_buffer_count(random.pick(&[1, 4, 64, 1024]))
}

/// Sends bytes over two streams at once and checks their echoes. `progress` counts the chunks
/// received.
async fn transfer(connection: &Connection, progress: &Cell<u64>) -> Outcome {
    let (a, b) = (pattern(1, STREAM_BYTES), pattern(2, STREAM_BYTES / 3));
    let (a, b) = tokio::join!(stream(connection, &a, progress), stream(connection, &b, progress));
    a.and(b)
}

async fn stream(connection: &Connection, bytes: &[u8], progress: &Cell<u64>) -> Outcome {
    let (mut send, mut recv) = connection.open_bi().await?;
    let sending = async {
        send.write_all(bytes).await?;
        send.finish()?;
        Outcome::Ok(())
    };
    let receiving = async {
        let mut at = 0;
        while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
            let expected =
                bytes.get(at..at + chunk.bytes.len()).ok_or("more bytes than were sent")?;
            if expected != &chunk.bytes[..] {
                return Err(format!("wrong bytes at {at}").into());
            }
            at += chunk.bytes.len();
            progress.set(progress.get() + 1);
        }
        if at == bytes.len() {
            Outcome::Ok(())
        } else {
            Err(format!("only {at} bytes were echoed").into())
        }
    };
    let (sent, received) = tokio::join!(sending, receiving);
    sent.and(received)
}

/// Fails if nothing has arrived for a period of `MAX_STALL`.
async fn watch(progress: &Cell<u64>) -> Outcome {
    loop {
        let before = progress.get();
        sleep(MAX_STALL).await;
        if progress.get() == before {
            return Err(format!("no progress in {MAX_STALL:?} after {before} chunks").into());
        }
    }
}

async fn transfers() -> Outcome {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(None);
    let (server, client) = endpoints("10.0.0.1:443", "10.0.0.2:0", transport)?;
    echo(&server);
    let at = server.local_addr()?;
    let connecting = async { tokio::try_join!(connect(&client, at), connect(&client, at)) };
    let (one, two) = timeout(MAX_STALL, connecting).await??;
    let progress = Cell::new(0);
    let both = async { tokio::try_join!(transfer(&one, &progress), transfer(&two, &progress)) };
    tokio::select! {
        done = both => done.map(drop),
        stalled = watch(&progress) => {
            println!("{:#?}\n{:#?}", one.stats(), two.stats());
            stalled
        }
    }
}

#[test]
fn no_transfer_stalls() {
    check(0..6, |seed| {
        let mut random = Random::new(seed);
        let faults = Faults::mixture(&mut random).with(Fault::SocketLimit, 0);
        let sim = Sim::builder(seed).link(link(&mut random)).faults(faults).build();
        let work = async { transfers().await.map_err(io::Error::other) };
        run_on(&sim, settings(&mut random), work)
    });
}

/// Returns the virtual time that transfers take on a network without losses.
fn time_of(link: Link, settings: Builder) -> Duration {
    let sim = Sim::builder(1).link(link).faults(Faults::none()).build();
    let timed = async {
        let start = Instant::now();
        transfers().await.map_err(io::Error::other)?;
        io::Result::Ok(start.elapsed())
    };
    run_on(&sim, settings, timed).unwrap()
}

/// A task that waits for send space is woken by the space, not by the next timer or
/// acknowledgement.
#[test]
fn task_waiting_for_space_is_woken_without_a_timer() {
    let slow =
        Link { latency: Duration::from_millis(1), receive_buffer: 1 << 20, ..Link::default() };
    for link in [slow, Link { send_buffer: 16_384, ..slow }] {
        let free = time_of(link, Runtime::builder());
        let tight = time_of(link, Runtime::builder().unsent_limit(1));
        assert!(tight < 2 * free, "{tight:?}, and {free:?} without a bound");
    }
}
