//! Client and server in one process, on a simulated kernel with faults. Two hours of virtual time
//! take milliseconds.
//! `cargo run --release -p annulus --example simulated -- 42`
//!
//! The number is the seed: it determines the network and the faults. The same number gives the same
//! run.

use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Sim, run_on};
use annulus::time::{Instant, sleep};
use annulus::{Runtime, spawn};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

const ADDRESS: &str = "127.0.0.1:7000";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or("42".into());
    let Ok(seed) = argument.parse() else {
        eprintln!("simulated: '{argument}' is not a seed; give a number from 0 to {}", u64::MAX);
        return ExitCode::from(2);
    };
    match run(seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("simulated: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(seed: u64) -> io::Result<()> {
    let sim = Sim::builder(seed).chaos().build();
    run_on(&sim, Runtime::builder(), async {
        spawn(serve());
        for round in 1..=5 {
            let (failed, took) = talk().await?;
            println!("round {round}: {failed} connects failed, the answer took {took:?}");
            sleep(Duration::from_secs(24 * 60)).await;
        }
        io::Result::Ok(())
    })?;
    let counts = sim.counts();
    println!("{} operations, {} faults; seed {seed}", counts.submitted, counts.faults);
    println!("trace {:016x}: the same seed has the same trace", sim.trace_hash());
    Ok(())
}

/// An echo server. It retries, because a fault may keep its listener from getting a descriptor.
async fn serve() -> io::Result<()> {
    let listener = loop {
        match TcpListener::bind(ADDRESS) {
            Ok(listener) => break listener,
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    };
    loop {
        let (mut stream, _) = listener.accept().await?;
        spawn(async move {
            while let Some(lease) = stream.recv().await? {
                stream.send(lease).await?;
            }
            io::Result::Ok(())
        });
    }
}

/// Connects, retrying until it succeeds, then sends 10,000 bytes and receives them back. Returns
/// how many connects failed, and how long the answer took.
async fn talk() -> io::Result<(u32, Duration)> {
    let mut failed = 0;
    let mut stream = loop {
        match TcpStream::connect(ADDRESS).await {
            Ok(stream) => break stream,
            Err(_) => failed += 1,
        }
        sleep(Duration::from_millis(100)).await;
    };
    let start = Instant::now();
    let mut left = 10_000;
    stream.send(vec![b'x'; left]).await?;
    while left > 0 {
        let lease = stream.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        left -= lease.len();
    }
    Ok((failed, start.elapsed()))
}
