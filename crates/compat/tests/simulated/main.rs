//! Unchanged hyper and axum services on a simulated network with partitions, resets, delays, slow
//! links and crashes. Some properties must hold for every seed, and a sweep must find a planted bug
//! that its seed replays.

mod client;
mod ledger;
mod service;
mod shutdown;

use annulus::Runtime;
use annulus::sim::{Disturbances, Link, Network, Random, Sim, check, find_failure};
use annulus::time::sleep;
use bytes::Bytes;
use client::Client;
use hyper::Method;
use ledger::{Checks, Ledger};
use service::{Gauge, Kind};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Number of seeds for each kind of service; `ANNULUS_SIM_SEEDS` overrides it.
const SEED_COUNT: u64 = 50;
const CLIENT_COUNT: u64 = 2;
const REQUESTS_PER_CLIENT: u64 = 8;
/// Maximum number of bytes of a body.
const MAX_BODY_BYTES: u64 = 50_000;

/// State shared by all programs of a run.
#[derive(Clone)]
struct Run {
    network: Network,
    kind: Kind,
    seed: u64,
    ledger: Ledger,
    gauge: Gauge,
    acknowledged: Rc<Cell<u64>>,
    attempts: Rc<Cell<u64>>,
    ended: Rc<Cell<u64>>,
}

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    trace: u64,
    took: Duration,
    attempts: u64,
}

/// Runs a client that sends requests, checks each response, and repeats unanswered requests.
async fn work(run: Run, number: u64) -> std::io::Result<()> {
    let mut random = Random::new(run.seed ^ number << 32);
    let mut client = Client::new(run.kind);
    for count in 0..REQUESTS_PER_CLIENT {
        if random.chance(500) {
            let body = vec![count as u8; random.below(MAX_BODY_BYTES) as usize];
            let echoed = client.ask(Method::POST, "/echo", &body.clone().into()).await;
            assert!(echoed == body, "the echo of {} bytes differs", body.len());
        } else {
            let (key, amount) = (number << 32 | count, random.between(1, 100));
            let path = format!("/deposit/{key}/{amount}");
            let receipt = client.ask(Method::POST, &path, &Bytes::new()).await;
            assert_eq!(receipt, key.to_string(), "the receipt is for another deposit");
            run.acknowledged.set(run.acknowledged.get() + amount);
        }
        sleep(Duration::from_millis(random.below(1000))).await;
    }
    run.attempts.set(run.attempts.get() + client.attempts);
    run.ended.set(run.ended.get() + 1);
    Ok(())
}

/// Waits for the clients, stops all disturbances, and checks the final state.
async fn inspect(run: Run) -> std::io::Result<()> {
    while run.ended.get() < CLIENT_COUNT {
        sleep(Duration::from_millis(100)).await;
    }
    run.network.calm();
    let balance = Client::new(run.kind).ask(Method::GET, "/balance", &Bytes::new()).await;
    assert_eq!(run.ledger.stored_twice(), None, "a deposit was stored twice");
    let stored = run.ledger.totals().1;
    assert_eq!((stored, &*balance), (run.acknowledged.get(), stored.to_string().as_bytes()));
    // The server's limits end every connection, including half-open ones.
    sleep(service::MAX_CONNECTION_TIME).await;
    assert_eq!(run.gauge.open(), 0, "a connection outlived its limits");
    assert!(run.gauge.oldest() <= service::MAX_CONNECTION_TIME, "{:?}", run.gauge.oldest());
    Ok(())
}

fn network(sim: &Rc<Sim>, seed: u64) -> Network {
    // Small buffers, because the kernel zeroes memory on first use, and each seed has several
    // runtimes.
    let network = Network::on(
        sim,
        seed,
        Runtime::builder().stream_buffer_size(16 * 1024).stream_buffer_count(64),
    );
    network.disturb(Disturbances {
        pause: Duration::from_millis(10)..Duration::from_secs(2),
        length: Duration::from_millis(1)..Duration::from_secs(10),
        ..Disturbances::default()
    });
    network
}

/// Runs a service and its clients with one seed.
fn simulate(kind: Kind, checks: Checks, seed: u64) -> std::io::Result<Summary> {
    let latency = Duration::from_micros(Random::new(seed).pick(&[25, 500, 20_000]));
    let sim = Sim::builder(seed).link(Link { latency, ..Link::default() }).build();
    let run = Run {
        network: network(&sim, seed),
        kind,
        seed,
        ledger: Ledger::new(checks),
        gauge: Gauge::default(),
        acknowledged: Rc::default(),
        attempts: Rc::default(),
        ended: Rc::default(),
    };
    let (ledger, gauge) = (run.ledger.clone(), run.gauge.clone());
    run.network.host("server", move || service::run(kind, ledger.clone(), gauge.clone()))?;
    for (number, name) in (0..CLIENT_COUNT).zip(["one", "two"]) {
        run.network.client(name, work(run.clone(), number))?;
    }
    run.network.client("inspector", inspect(run.clone()))?;
    run.network.run()?;
    assert!(run.gauge.most_memory() < MAX_HELD_BYTES, "{} bytes", run.gauge.most_memory());
    assert_eq!(sim.open_descriptors(), 0, "{:?}", sim.leftovers());
    Ok(Summary {
        trace: sim.trace_hash(),
        took: run.network.elapsed(),
        attempts: run.attempts.get(),
    })
}

/// Maximum memory of the server's connections: a few at a time, each with its receive and send
/// bound.
const MAX_HELD_BYTES: usize = 8 * 2 * 256 * 1024;

/// Runs all seeds, and checks that they were disturbed: an undisturbed request takes one attempt.
fn sweep(kind: Kind) {
    let (mut attempts, mut runs) = (0, 0);
    check(0..SEED_COUNT, |seed| {
        attempts += simulate(kind, Checks::Twice, seed)?.attempts;
        runs += 1;
        std::io::Result::Ok(())
    });
    let asked = runs * CLIENT_COUNT * REQUESTS_PER_CLIENT;
    println!("{kind:?}: {runs} runs, {asked} requests, {attempts} attempts");
    assert!(
        runs < 10 || attempts > asked + asked / 10,
        "only {attempts} attempts for {asked} requests"
    );
}

#[test]
fn http_1() {
    sweep(Kind::Http1);
}

#[test]
fn http_2() {
    sweep(Kind::Http2);
}

#[test]
fn axum() {
    sweep(Kind::Axum);
}

/// The libraries' hash maps have random keys, which differ between two runs in one process. A run
/// must not depend on them.
#[test]
fn one_seed_is_one_run() {
    for kind in [Kind::Http1, Kind::Http2, Kind::Axum] {
        for seed in 0..3 {
            let [first, second] = [(); 2].map(|()| simulate(kind, Checks::Twice, seed).unwrap());
            assert_eq!(first, second, "{kind:?}, seed {seed}");
            assert_ne!(first.trace, simulate(kind, Checks::Twice, seed + 1).unwrap().trace);
        }
    }
}

/// The service checks that a deposit is new, waits for its database, and does not check again. A
/// client that retries while the first attempt is in progress deposits twice.
#[test]
fn a_planted_bug_is_found_and_its_seed_replays_it() {
    for kind in [Kind::Http1, Kind::Http2, Kind::Axum] {
        let run = |seed| simulate(kind, Checks::OnlyBefore, seed);
        let failed = find_failure(0..1000, |seed| run(seed).map(drop)).expect("no seed failed");
        assert!(failed.message.contains("a deposit was stored twice"), "{}", failed.message);
        assert!(failed.to_string().contains(&format!("ANNULUS_SIM_SEED={}", failed.seed)));
        println!("{kind:?}: {failed}");
        // The seed alone reproduces the failure.
        let again = find_failure([failed.seed], |seed| run(seed).map(drop));
        assert_eq!(again, Some(failed.clone()));
        // Without the bug, the seed passes.
        simulate(kind, Checks::Twice, failed.seed).expect("the service without the bug failed");
    }
}
