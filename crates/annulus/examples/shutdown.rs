//! A graceful shutdown. Run `cargo run --release -p annulus --example shutdown -- 127.0.0.1:7000
//! 5`, then `nc 127.0.0.1 7000` in another terminal, and press ctrl-c in the first one.
//!
//! The server answers lines, each after a second of work. On SIGINT or SIGTERM it stops accepting,
//! lets each connection finish its current line, and aborts connections that have not ended within
//! the given number of seconds. A second signal ends it at once. Limits: one client per available
//! descriptor, and further clients wait; 1 KiB per line; no time limit for a silent client, unless
//! it has vanished.

use annulus::io::AsyncRecv;
use annulus::net::{KeepAlive, ListenOptions, TcpStream};
use annulus::signal::{Signal, signals};
use annulus::task::JoinSet;
use annulus::time::{sleep, timeout};
use std::io;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const WORK: Duration = Duration::from_secs(1);
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };
/// Maximum number of bytes per line.
const LIMIT: usize = 1024;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:7000".into());
    let seconds = args.next().unwrap_or("5".into()).parse().map_err(io::Error::other)?;
    annulus::run(server(address, seconds))
}

pub(crate) async fn server(address: String, seconds: u64) -> io::Result<()> {
    let (stop, mut connections) = (CancellationToken::new(), JoinSet::new());
    annulus::spawn(cancel_on_signal(stop.clone()));
    let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, _peer) = accepted?;
        connections.spawn(serve(stream, stop.clone()));
        // Drops the results of connections that have ended.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    match timeout(Duration::from_secs(seconds), all).await {
        Ok(()) => eprintln!("all connections have ended"),
        Err(_) => eprintln!("{} connections are aborted", connections.len()),
    }
    Ok(())
}

async fn cancel_on_signal(stop: CancellationToken) -> io::Result<()> {
    let mut signals = signals(&[Signal::SIGINT, Signal::SIGTERM])?;
    let signal = signals.recv().await?;
    eprintln!("{signal}: no longer accepting");
    stop.cancel();
    let again = signals.recv().await?;
    std::process::exit(128 + again.number())
}

async fn serve(mut stream: TcpStream, stop: CancellationToken) -> io::Result<()> {
    // Dropping the receive loses nothing. Only the wait for the next line is cancelled, not the
    // work.
    while let Some(line) = stop.run_until_cancelled(stream.recv_until(b'\n', LIMIT)).await {
        let Some(line) = line? else { break };
        sleep(WORK).await;
        stream.send(line.to_ascii_uppercase()).await?;
    }
    stream.shutdown().await
}
