//! A TCP proxy: each connection goes on to a target, direction by direction.
//! `cargo run --release -p annulus --example proxy -- 127.0.0.1:7000 127.0.0.1:8000 60`
//!
//! An end of one direction is passed on while the other continues. A connection over which nothing has come for so many
//! seconds is closed. For each connection it prints how many bytes went each way, and how it ended. Without the time-out and
//! the counts meanwhile, `annulus::io::copy_bidirectional` is all of it.

use annulus::net::{RecvHalf, SendHalf, TcpListener, TcpStream};
use annulus::time::{Instant, sleep_until};
use futures_util::future::{Either, select, try_join};
use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::time::Duration;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or("127.0.0.1:7000".into());
    let target = args.next().unwrap_or("127.0.0.1:8000".into());
    let seconds = args.next().unwrap_or("60".into()).parse().map_err(io::Error::other)?;
    annulus::run(async {
        let listener = TcpListener::bind(listen)?;
        eprintln!("listening on {}", listener.local_addr()?);
        loop {
            let (client, peer) = listener.accept().await?;
            let target = target.clone();
            annulus::spawn(async move {
                let last = Cell::new(Instant::now());
                let traffic = Traffic { up: Cell::new(0), down: Cell::new(0), last };
                let end = proxy(client, &target, &traffic, Duration::from_secs(seconds)).await;
                let (up, down) = (traffic.up.get(), traffic.down.get());
                let how = end.map_or_else(|error| error.to_string(), |()| "closed".into());
                eprintln!("{peer}: {up} bytes up, {down} bytes down, {how}");
            });
        }
    })
}

/// What has gone over a connection.
struct Traffic {
    up: Cell<u64>,
    down: Cell<u64>,
    last: Cell<Instant>,
}

async fn proxy(
    client: TcpStream,
    target: &str,
    traffic: &Traffic,
    idle: Duration,
) -> io::Result<()> {
    let (from_client, to_client) = client.split();
    let (from_target, to_target) = TcpStream::connect(target).await?.split();
    let both = try_join(
        relay(from_client, to_target, &traffic.up, &traffic.last),
        relay(from_target, to_client, &traffic.down, &traffic.last),
    );
    match select(pin!(both), pin!(silence(&traffic.last, idle))).await {
        Either::Left((end, _)) => end.map(drop),
        Either::Right(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Passes one direction on, to its end. The bytes are not copied: what the kernel has filled is sent.
async fn relay(
    mut from: RecvHalf,
    mut to: SendHalf,
    bytes: &Cell<u64>,
    last: &Cell<Instant>,
) -> io::Result<()> {
    while let Some(lease) = from.recv().await? {
        bytes.set(bytes.get() + lease.len() as u64);
        last.set(Instant::now());
        to.send(lease).await?;
    }
    to.shutdown().await
}

/// Ready once nothing has come for so long.
async fn silence(last: &Cell<Instant>, idle: Duration) {
    while last.get().elapsed() < idle {
        sleep_until(last.get() + idle).await;
    }
}
