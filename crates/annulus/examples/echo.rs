//! A minimal echo server. Run `cargo run --release -p annulus --example echo -- 127.0.0.1:7000`.
//!
//! Limits: one client per available descriptor, and further clients wait; 256 KiB per direction,
//! and a quarter of the machine's memory in total; no timeouts. SIGINT and SIGTERM end the server
//! once queued bytes have been sent.

use annulus::net::{KeepAlive, ListenOptions, TcpStream};
use annulus::signal::until_terminated;
use std::io;
use std::time::Duration;

/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    annulus::run(until_terminated(async {
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
        eprintln!("listening on {}", listener.local_addr()?);
        loop {
            let (stream, _peer) = listener.accept().await?;
            annulus::spawn(echo(stream));
        }
    }))
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}
