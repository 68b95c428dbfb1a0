//! An echo server on every core: one runtime per CPU. Each new connection goes to the runtime with
//! the fewest connections.
//!
//! Run `cargo run --release -p annulus --example shards -- 127.0.0.1:7000`, then `nc 127.0.0.1
//! 7000`. Limits: one client per available descriptor, and further clients wait; 256 KiB per
//! direction, and a quarter of the machine's memory in total; no timeouts. SIGINT and SIGTERM end
//! the server once queued bytes have been sent.

use annulus::net::{KeepAlive, ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread};
use annulus::signal::until_terminated;
use std::io;
use std::time::Duration;

/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    let count = annulus::shards::cpus()?.len();
    let (options, spread) = (ListenOptions::new().keepalive(KEEP_ALIVE), Spread::LeastConnections);
    let listener = ShardedListener::bind(address, &options, count, spread)?;
    eprintln!("listening on {}", listener.local_addr());
    annulus::shards(count, async |shard| {
        eprintln!("shard {}: {}", shard.index(), shard.driver());
        let mut listener = listener.open(&shard)?;
        let serves = async {
            while let Some((stream, _peer)) = listener.accept().await? {
                annulus::spawn(echo(stream));
            }
            io::Result::Ok(())
        };
        // The first shard accepts for all shards. When it ends, the others end too, so they need
        // not wait for signals.
        if shard.index() > 0 { serves.await } else { until_terminated(serves).await }
    })?;
    Ok(())
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}
