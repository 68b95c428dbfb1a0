//! Power cuts: what a program did not see synced may be lost, and a test of a careless program
//! fails.

use annulus::fs::{self, File, OpenOptions};
use annulus::io::AsyncRecv;
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Device, Disk, FailedSeed, Network, Sim, find_failure, run_on};
use annulus::time::sleep;
use annulus::{Runtime, spawn};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Number of seeds within which the test must find each mistake.
const MAX_SEEDS: u64 = 40;

/// How a journal is kept.
#[derive(Clone, Copy, PartialEq)]
enum Journal {
    Careful,
    AnswersBeforeTheSync,
    TrustsATornTail,
}

/// Bytes per record: a number, and copies of its lowest byte.
const RECORD: usize = 1500;

fn record(number: u64) -> Vec<u8> {
    let mut record = vec![number as u8; RECORD];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record
}

/// Returns the number of records in the journal.
fn count(journal: &[u8], kind: Journal) -> u64 {
    let is_whole = |(number, bytes): &(u64, &[u8])| match kind {
        Journal::TrustsATornTail => !bytes.is_empty(),
        _ => **bytes == record(*number),
    };
    (1..).zip(journal.chunks(RECORD)).take_while(is_whole).count() as u64
}

/// Appends a record for each line that it receives, and answers with the record's number.
async fn serve(kind: Journal) -> io::Result<()> {
    let journal = Rc::new(OpenOptions::new().write(true).create(true).open("/journal").await?);
    File::open("/").await?.sync_all().await?;
    let mut number = count(&fs::read("/journal").await?, kind);
    let listener = TcpListener::bind("0.0.0.0:80")?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut line = String::new();
        while stream.read_line(&mut line, 10).await? > 0 {
            line.clear();
            journal.write_all_at(record(number + 1), number * RECORD as u64).await.0?;
            number += 1;
            if kind == Journal::AnswersBeforeTheSync {
                let journal = journal.clone();
                spawn(async move { journal.sync_all().await });
            } else {
                journal.sync_all().await?;
            }
            stream.send(format!("{number}\n")).await?;
        }
    }
}

/// Appends records until the power fails at a random moment, twice. After each time, the journal
/// must have all records that were acknowledged.
fn cut(seed: u64, kind: Journal) -> io::Result<()> {
    let acknowledged = Rc::new(Cell::new(0));
    let mut disk = Disk::new(Device::default());
    for round in 0..2 {
        let network = Network::new(seed);
        network.host("server", move || serve(kind))?;
        network.set_disk("server", disk)?;
        let last = acknowledged.clone();
        network.client("client", async move {
            let appends = async {
                let mut stream = loop {
                    match TcpStream::connect("server:80").await {
                        Ok(stream) => break stream,
                        // The server reads its journal before it listens.
                        Err(_) => sleep(SECOND / 10_000).await,
                    }
                };
                loop {
                    stream.send("append\n").await?;
                    let mut answer = String::new();
                    stream.read_line(&mut answer, 100).await?;
                    last.set(answer.trim().parse().map_err(io::Error::other)?);
                }
            };
            // The run ends, and with it the power, after 1 to 11 ms.
            let moment = SECOND / 1000 + SECOND / 10_000 * ((seed * 37 + round * 11) % 100) as u32;
            match annulus::time::timeout(moment, appends).await {
                Ok(ended) => ended,
                Err(_) => io::Result::Ok(()),
            }
        })?;
        network.run()?;
        disk = network.disk("server")?.after_power_cut(seed);
        let sim = Sim::builder(seed).disk(disk.clone()).build();
        let journal = run_on(&sim, Runtime::builder(), fs::read("/journal"))?;
        for number in 1..=acknowledged.get() {
            let found = journal.chunks(RECORD).nth(number as usize - 1);
            if found != Some(&record(number)) {
                let text = format!("record {number} of {} is lost", acknowledged.get());
                return Err(io::Error::other(text));
            }
        }
    }
    Ok(())
}

fn find(kind: Journal) -> Option<FailedSeed> {
    find_failure(0..MAX_SEEDS, |seed| cut(seed, kind))
}

#[test]
fn a_journal_that_answers_before_the_sync_fails_and_a_careful_one_passes() {
    let failed = find(Journal::AnswersBeforeTheSync).expect("no seed has lost a record");
    assert!(failed.message.contains("is lost"), "{failed}");
    assert_eq!(find(Journal::Careful), None);
}

#[test]
fn a_journal_that_trusts_a_torn_tail_fails() {
    let failed = find(Journal::TrustsATornTail).expect("no seed has kept a torn record");
    assert!(failed.message.contains("is lost"), "{failed}");
}

#[test]
fn a_sync_in_flight_at_the_end_of_a_run_has_no_effect() -> io::Result<()> {
    let network = Network::new(1);
    network.client("client", async {
        let file = File::create("/file").await?;
        file.write_all_at("never synced", 0).await.0?;
        spawn(async move { file.sync_all().await });
        sleep(SECOND / 100_000).await;
        io::Result::Ok(())
    })?;
    network.run()?;
    let disk = network.disk("client")?;
    let outcome = |seed| {
        let sim = Sim::builder(1).disk(disk.after_power_cut(seed)).build();
        run_on(&sim, Runtime::builder(), fs::read("/file")).is_ok_and(|bytes| !bytes.is_empty())
    };
    let kept = (0..100).filter(|seed| outcome(*seed)).count();
    assert!((1..100).contains(&kept), "{kept} of 100 power cuts have kept the file");
    Ok(())
}
