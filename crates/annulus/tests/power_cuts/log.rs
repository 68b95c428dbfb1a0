//! The example `log` under power cuts, failing and full disks, partitions and resets.

#[allow(dead_code, reason = "the test has no use for `main`")]
#[path = "../../examples/log.rs"]
mod broker;

use annulus::Runtime;
use annulus::io::AsyncRecv;
use annulus::net::TcpStream;
use annulus::sim::{
    Device, Disk, Disturbance, Disturbances, Network, Random, Sim, check, find_failure,
};
use annulus::time::{Instant, sleep, timeout};
use broker::{Config, Mistake};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

const PRODUCERS: u64 = 3;
/// Records per producer, and how many it sends at most before it reads the answers.
const RECORDS: u64 = 40;
const MAX_TOGETHER: u64 = 4;
const TOTAL: u64 = PRODUCERS * RECORDS;
/// Bytes per segment, so that segments are completed within a run.
const SEGMENT: u64 = 20_000;
/// How long a producer keeps a connection. A consumer waits four times as long for a record.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause of a client before it connects again.
const PAUSE: Duration = Duration::from_millis(20);
/// When the faults end, and when an unfinished run fails.
const CALM_AFTER: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(60);
/// Number of seeds, unless `ANNULUS_SIM_SEEDS` is set.
const SEEDS: u64 = 300;

/// A device that syncs in three to four milliseconds, so that faults often come during a sync.
const DEVICE: Device = Device {
    read: Duration::from_micros(80),
    write: Duration::from_micros(20),
    sync: Duration::from_millis(3),
    jitter: Duration::from_millis(1),
    capacity: 1 << 30,
    alignment: 512,
    read_errors: 0,
    write_errors: 0,
    sync_errors: 0,
};

/// The payload of a record, which depends on its producer and sequence: up to 3,000 bytes.
fn payload(producer: u64, sequence: u64) -> Vec<u8> {
    let mut random = Random::new(producer << 32 | sequence);
    let len = random.pick(&[0, 100, 600, 3000]);
    (0..random.below(len + 1)).map(|_| random.bits() as u8).collect()
}

/// What the clients know about the log.
#[derive(Default)]
struct Known {
    /// The producer and sequence of each record that a consumer has seen.
    records: RefCell<Vec<(u64, u64)>>,
    /// Number of `ERR` answers.
    errors: Cell<u64>,
    /// Number of producers whose records were all acknowledged.
    finished: Cell<u64>,
    /// Whether the faults have ended.
    is_calm: Cell<bool>,
}

/// Starts the broker, and restarts it after an error, as a service manager does.
async fn supervise(mistake: Option<Mistake>) -> io::Result<()> {
    loop {
        let config = Config { dir: "/log".into(), segment_bytes: SEGMENT, mistake };
        match broker::server("0.0.0.0:7000".into(), config).await {
            Ok(()) => return Ok(()),
            // Only a mistake of the broker damages a segment.
            Err(error) if error.to_string().contains("is damaged") => return Err(error),
            Err(error) => eprintln!("the broker has ended: {error}"),
        }
        sleep(PAUSE).await;
    }
}

/// Appends records, and repeats those that were not acknowledged.
async fn produce(producer: u64, seed: u64, known: Rc<Known>) -> io::Result<()> {
    let (mut acknowledged, mut random) = (0, Random::new(seed ^ producer));
    while acknowledged < RECORDS {
        let produces = async {
            let mut stream = TcpStream::connect("broker:7000").await?;
            loop {
                let last = RECORDS.min(acknowledged + random.between(1, MAX_TOGETHER));
                for sequence in acknowledged + 1..=last {
                    let payload = payload(producer, sequence);
                    stream
                        .send(format!("APPEND {producer} {sequence} {}\n", payload.len()))
                        .await?;
                    stream.send(payload).await?;
                }
                for sequence in acknowledged + 1..=last {
                    let answer = read(&mut stream).await?;
                    if answer == format!("OK {producer} {sequence}") {
                        acknowledged = sequence;
                        continue;
                    }
                    known.errors.set(known.errors.get() + 1);
                    // The broker must not ask again for a record that it has acknowledged.
                    let wanted = answer.rsplit_once("; send ").and_then(|it| it.1.parse().ok());
                    if let Some(wanted) = wanted.filter(|wanted: &u64| *wanted <= acknowledged) {
                        return Ok(Some(wanted));
                    }
                }
                if acknowledged == RECORDS {
                    return io::Result::Ok(None);
                }
                sleep(Duration::from_millis(random.between(1, 80))).await;
            }
        };
        if let Ok(Ok(Some(lost))) = timeout(PATIENCE, produces).await {
            let text = format!("producer {producer}: record {lost} was acknowledged and is lost");
            return Err(io::Error::other(text));
        }
        sleep(PAUSE).await;
    }
    known.finished.set(known.finished.get() + 1);
    Ok(())
}

/// Reads a line without its end.
async fn read(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line, 500).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// Follows the log until it has seen all records. After an error it continues, or begins again.
async fn consume(continues: bool, known: Rc<Known>) -> io::Result<()> {
    let mut next = 0;
    loop {
        if !continues {
            next = 0;
        }
        let consumes = async {
            let mut stream = TcpStream::connect("broker:7000").await?;
            stream.send(format!("FOLLOW {next}\n")).await?;
            while next < TOTAL {
                let (offset, id, bytes) = timeout(4 * PATIENCE, record(&mut stream)).await??;
                if let Err(problem) = known.see(next, offset, id, &bytes) {
                    return Ok(Some(problem));
                }
                next += 1;
            }
            io::Result::Ok(None)
        };
        let was_complete = known.is_calm.get() && known.finished.get() == PRODUCERS;
        match consumes.await {
            Ok(Some(problem)) => return Err(io::Error::other(problem)),
            Ok(None) => return Ok(()),
            // Only a mistake of the broker damages a segment.
            Err(error) if error.to_string().contains("is damaged") => return Err(error),
            Err(_) if was_complete => {
                let text = format!("the log ends at {next}, but {TOTAL} records were acknowledged");
                return Err(io::Error::other(text));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Receives a record: its offset, its producer and sequence, and its payload.
async fn record(stream: &mut TcpStream) -> io::Result<(u64, (u64, u64), Vec<u8>)> {
    let line = read(stream).await?;
    if let Some(reason) = line.strip_prefix("ERR ") {
        return Err(io::Error::other(reason));
    }
    let numbers = line.strip_prefix("RECORD ").unwrap_or_else(|| panic!("not a record: {line}"));
    let numbers: Vec<u64> = numbers.split(' ').map(|word| word.parse().unwrap()).collect();
    let [offset, producer, sequence, len] = numbers[..] else { panic!("not a record: {line}") };
    Ok((offset, (producer, sequence), stream.recv_exact(len as usize).await?.to_vec()))
}

/// Cuts the broker's power, kills it, and lets its disk fail, fill up or slow down, at random
/// times.
async fn torment(network: Network, seed: u64, known: Rc<Known>) -> io::Result<()> {
    let mut random = Random::new(seed.rotate_left(17));
    let start = Instant::now();
    let millis = |random: &mut Random, most: u64| Duration::from_micros(random.below(1000 * most));
    while start.elapsed() < CALM_AFTER {
        sleep(millis(&mut random, 80)).await;
        let device = match random.below(8) {
            0..3 => {
                network.power_cut("broker")?;
                sleep(millis(&mut random, 20)).await;
                network.bounce("broker")?;
                continue;
            }
            3 => {
                network.crash("broker")?;
                network.bounce("broker")?;
                continue;
            }
            4 | 5 => Device { read_errors: 300, write_errors: 300, sync_errors: 300, ..DEVICE },
            6 => Device { capacity: 0, ..DEVICE },
            _ => Device { jitter: Duration::from_millis(20), ..DEVICE },
        };
        network.set_device("broker", device)?;
        sleep(millis(&mut random, 80)).await;
        if random.chance(500) {
            network.power_cut("broker")?;
            network.bounce("broker")?;
        }
        network.set_device("broker", DEVICE)?;
    }
    network.calm();
    sleep(PAUSE).await;
    known.is_calm.set(true);
    Ok(())
}

impl Known {
    /// Checks a record that a consumer has received as the next one.
    fn see(&self, next: u64, offset: u64, id: (u64, u64), bytes: &[u8]) -> Result<(), String> {
        let what = format!("record {} of producer {} at offset {offset}", id.1, id.0);
        if offset != next {
            return Err(format!("{what} came instead of offset {next}"));
        }
        if bytes != payload(id.0, id.1) {
            return Err(format!("{what} was altered"));
        }
        let mut records = self.records.borrow_mut();
        match records.get(offset as usize) {
            Some(before) if *before == id => return Ok(()),
            Some(before) => return Err(format!("{what} was {before:?} before")),
            None => {}
        }
        let before = records.iter().filter(|(producer, _)| *producer == id.0).count() as u64;
        if id.1 != before + 1 {
            return Err(format!("{what} came after {before} of this producer"));
        }
        records.push(id);
        Ok(())
    }
}

/// Runs the broker with its clients. Returns the number of errors that producers received.
fn simulate(seed: u64, mistake: Option<Mistake>) -> io::Result<u64> {
    let sim = Sim::builder(seed).disk(Disk::new(DEVICE)).build();
    let network = Network::on(&sim, seed, Runtime::builder());
    let known = Rc::<Known>::default();
    network.host("broker", move || supervise(mistake))?;
    for producer in 1..=PRODUCERS {
        let produces = produce(producer, seed, known.clone());
        network.client(&format!("producer-{producer}"), produces)?;
    }
    network.client("follower", consume(true, known.clone()))?;
    network.client("restarter", consume(false, known.clone()))?;
    network.client("tormentor", torment(network.clone(), seed, known.clone()))?;
    let millis = Duration::from_millis;
    network.disturb(Disturbances {
        kinds: &[Disturbance::Partition, Disturbance::Reset, Disturbance::Delay, Disturbance::Slow],
        pause: millis(1)..millis(200),
        length: millis(1)..millis(200),
    });
    network.time_limit(LIMIT);
    network.run()?;
    Ok(known.errors.get())
}

#[test]
fn the_log_survives_power_cuts_and_failing_disks() {
    let errors = Cell::new(0);
    check(0..SEEDS, |seed| {
        errors.set(errors.get() + simulate(seed, None)?);
        io::Result::Ok(())
    });
    let is_replay = std::env::var_os("ANNULUS_SIM_SEED").is_some();
    assert!(errors.get() > 0 || is_replay, "no producer was told of a failing or full disk");
}

#[test]
fn a_producer_that_does_not_read_its_answers_is_disconnected() -> io::Result<()> {
    let network = Network::new(1);
    network.host("broker", || supervise(None))?;
    network.client("producer", async {
        let mut stream = loop {
            match TcpStream::connect("broker:7000").await {
                Ok(stream) => break stream,
                Err(_) => sleep(PAUSE).await,
            }
        };
        let start = Instant::now();
        // The answer `ERR 1 9 comes too early; send 1` is longer than the request.
        while stream.send("APPEND 1 9 0\n".repeat(1000)).await.is_ok() {}
        let waited = start.elapsed().as_secs();
        assert!((30..60).contains(&waited), "the producer was disconnected after {waited} s");
        io::Result::Ok(())
    })?;
    network.time_limit(LIMIT);
    network.run()
}

/// Shows that the test with all faults finds a mistake of the broker.
fn finds(mistake: Mistake) {
    let failed = find_failure(0..SEEDS, |seed| simulate(seed, Some(mistake)).map(drop));
    let failed = failed.unwrap_or_else(|| panic!("no seed has found {mistake:?}"));
    println!("{mistake:?} is found: {failed}");
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    finds(Mistake::AcknowledgeBeforeSync);
}

#[test]
fn an_ignored_failure_of_a_sync_is_found() {
    finds(Mistake::IgnoreFailedSync);
}

#[test]
fn trust_in_a_torn_record_is_found() {
    finds(Mistake::TrustTornRecord);
}
