//! Tests of the client on the simulated kernel, with replies split anywhere and connections that
//! break at any byte.

use super::StreamClientKind;
use crate::clock;
use crate::exchange::EchoExchange;
use crate::fault::Faults;
use crate::plan::{Plan, Streams};
use crate::recording::Interval;
use crate::threads::{ClientPool, RunContext};
use crate::transport::Connector;
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Link, Random, Sim, run_on};
use annulus::{Runtime, time};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: std::ops::Range<u64> = 0..40;

/// Echoes in pieces of random lengths, and breaks each connection after a random number of bytes
/// from the range.
async fn serve(listener: TcpListener, seed: u64, bytes: std::ops::Range<u64>) -> io::Result<()> {
    let mut random = Random::new(seed);
    loop {
        let (stream, _) = listener.accept().await?;
        let last = random.between(bytes.start, bytes.end);
        annulus::spawn(echo(stream, Random::new(random.bits()), last));
    }
}

async fn echo(mut stream: TcpStream, mut random: Random, mut left: u64) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        let mut rest = &lease[..];
        while !rest.is_empty() {
            let piece = random.between(1, 300).min(rest.len() as u64).min(left) as usize;
            if piece == 0 {
                return Ok(());
            }
            stream.send(rest[..piece].to_vec()).await?;
            (rest, left) = (&rest[piece..], left - piece as u64);
            if random.chance(300) {
                stream.drain().await?;
                time::sleep(Duration::from_micros(random.below(200))).await;
            }
        }
    }
    Ok(())
}

/// Runs clients for some milliseconds of virtual time, until every request has ended, against a
/// server that breaks connections after a number of bytes from the range.
fn exchange(seed: u64, bytes: std::ops::Range<u64>, reconnect: bool) -> (Interval, Faults) {
    let mut random = Random::new(seed);
    let latency = Duration::from_micros(random.between(1, 300));
    let segment = random.between(1, 1500) as u32;
    let sim = Sim::builder(seed).link(Link { latency, segment, ..Link::default() }).build();
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    let requests_per_connection = random.chance(300).then(|| random.between(1, 20));
    let pipeline = random.between(1, 9) as usize;
    let streams = Streams { pipeline, reconnect, requests_per_connection, ..Streams::default() };
    let length = random.between(1, 900) as usize;
    let plan = Plan {
        clients: random.between(1, 6) as usize,
        length,
        reply_timeout: Duration::from_secs(60),
        ..Plan::new(address.into(), streams)
    };
    run_on(&sim, Runtime::builder(), async {
        annulus::spawn(serve(TcpListener::bind(address)?, seed, bytes));
        let run = RunContext::new(&plan);
        let mut pool = started(&run, streams).await;
        time::sleep(Duration::from_millis(20)).await;
        pool.close();
        pool.finish().await;
        pool.end().await;
        let mut recorded = Interval::default();
        let intervals = run.collector.finish(plan.duration, |_| ());
        intervals.iter().for_each(|interval| recorded.add(interval));
        io::Result::Ok((recorded, run.faults.take()))
    })
    .unwrap()
}

/// Connects and starts clients that send echo requests.
async fn started(
    run: &Arc<RunContext>,
    streams: Streams,
) -> ClientPool<StreamClientKind<EchoExchange>> {
    let connector = Connector::new(Streams::default(), None);
    let (seed, length) = (run.plan.seed, run.plan.length);
    let echo = move |client| EchoExchange::new(seed, client, length);
    let mut pool = ClientPool::new(run, StreamClientKind::new(&connector, streams, echo), 0, 1);
    assert!(pool.connect().await, "{:?}", run.faults.take().first);
    pool.open(0..0);
    pool.start(clock::nanos());
    pool
}

#[test]
fn split_replies_answer_each_request_once() {
    for seed in SEEDS {
        let (recorded, faults) = exchange(seed, 1 << 60..1 << 61, false);
        assert_eq!(faults.first, None, "seed {seed}");
        assert!(recorded.sent > 0, "seed {seed}");
        assert_eq!(recorded.answered + recorded.cut_off, recorded.sent, "seed {seed}");
        assert_eq!(
            (recorded.response.len(), recorded.failed),
            (recorded.answered, 0),
            "seed {seed}"
        );
    }
}

#[test]
fn broken_connection_loses_only_requests_in_flight() {
    let mut broken = 0;
    for seed in SEEDS {
        let (recorded, faults) = exchange(seed, 0..5000, true);
        let ended = recorded.answered + recorded.failed + recorded.cut_off;
        assert_eq!(ended, recorded.sent, "seed {seed}");
        let known = ["closed early", "reset"];
        let unknown = faults.by_kind.keys().find(|kind| !known.contains(&kind.as_str()));
        assert_eq!(unknown, None, "seed {seed}: {:?}", faults.first);
        let count = faults.by_kind.values().sum::<u64>();
        assert!(recorded.failed == 0 || count > 0, "seed {seed}");
        broken += count;
    }
    assert!(broken > SEEDS.end, "{broken} connections have broken");
}

/// Returns true if the clients have ended a minute after their server, which breaks connections.
fn ends_after_its_server(requests: Option<u64>) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    let streams = Streams { reconnect: true, ..Streams::default() };
    let plan = Plan { clients: 3, requests, ..Plan::new(address.into(), streams) };
    run_on(&Sim::builder(1).build(), Runtime::builder(), async {
        let server = annulus::spawn(serve(TcpListener::bind(address)?, 1, 0..5000));
        let run = RunContext::new(&plan);
        let mut pool = started(&run, streams).await;
        time::sleep(Duration::from_millis(20)).await;
        server.abort();
        let has_ended = time::timeout(Duration::from_secs(60), pool.finish()).await.is_ok();
        pool.end().await;
        assert!(run.faults.take().by_kind.contains_key("connect refused"));
        io::Result::Ok(has_ended)
    })
    .unwrap()
}

#[test]
fn number_of_requests_does_not_keep_clients_waiting_for_a_lost_server() {
    assert!(ends_after_its_server(Some(1_000_000)));
    assert!(!ends_after_its_server(None), "the clients have ended before their time");
}
