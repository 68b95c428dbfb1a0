//! A TCP proxy: forwards each connection to a target, each direction separately.
//! `cargo run --release -p annulus --example proxy -- 127.0.0.1:7000 127.0.0.1:8000 60 4000 1`
//!
//! It passes on the end of one direction while the other continues, and passes on a reset as a
//! reset. It prints how many bytes went each way. With the arguments above, a connection ends after
//! 60 seconds without a byte, or up to a quarter later; 4000 connections may be open, and further
//! ones are closed at once; and there is one shard. The target has five seconds to accept, unless
//! the client leaves earlier. SIGINT and SIGTERM end all connections.

use annulus::io::copy_bidirectional;
use annulus::net::{ConnectOptions, KeepAlive, ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread};
use annulus::signal::until_terminated;
use annulus::time::{sleep, timeout};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const CONNECTING: Duration = Duration::from_secs(5);
/// An idle client or target that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or("127.0.0.1:7000".into());
    let target: Arc<str> = args.next().unwrap_or("127.0.0.1:8000".into()).into();
    let idle = args.next().unwrap_or("60".into()).parse().map_err(io::Error::other)?;
    let most: usize = args.next().unwrap_or("4000".into()).parse().map_err(io::Error::other)?;
    let shards = args.next().unwrap_or("1".into()).parse().map_err(io::Error::other)?;
    let options = ListenOptions::new().keepalive(KEEP_ALIVE);
    let listener = ShardedListener::bind(listen, &options, shards, Spread::default())?;
    eprintln!("listening on {}", listener.local_addr());
    annulus::shards(shards, async |shard| {
        let mut listener = listener.open(&shard)?;
        let serves = async {
            while let Some((client, mut peer)) = listener.accept().await? {
                // A dual-stack socket reports IPv4 addresses in their IPv6 form.
                peer.set_ip(peer.ip().to_canonical());
                // Each connection of any shard holds a reference to the target's address, so the
                // references count the connections.
                let target = target.clone();
                if Arc::strong_count(&target) > most.saturating_add(1) {
                    eprintln!("{peer}: refused, since {most} connections are open");
                    continue;
                }
                annulus::spawn(async move {
                    let mut copied = (0, 0);
                    let end = proxy(client, &target, idle, &mut copied).await;
                    let how = end.err().map_or("closed".into(), |error| error.kind().to_string());
                    eprintln!("{peer}: {} bytes up, {} bytes down, {how}", copied.0, copied.1);
                });
            }
            io::Result::Ok(())
        };
        // The first shard accepts for all shards. When it ends, the others end too, so they need
        // not wait for signals.
        if shard.index() > 0 { serves.await } else { until_terminated(serves).await }
    })?;
    Ok(())
}

/// Numbers of bytes copied to the target and to the client.
type Copied = (u64, u64);

async fn proxy(mut client: TcpStream, to: &str, idle: u64, copied: &mut Copied) -> io::Result<()> {
    let left = async {
        // A client that has sent bytes may end its direction and still wait for an answer. Even an
        // immediate end may be intended, so give the target a moment to accept.
        match client.fill_at_least(1 << 16).await {
            Ok([]) => sleep(CONNECTING / 10).await,
            Ok(_) => pending().await,
            Err(error) => return error,
        }
        io::ErrorKind::ConnectionAborted.into()
    };
    let options = ConnectOptions::new().keepalive(KEEP_ALIVE);
    let mut target = tokio::select! {
        target = timeout(CONNECTING, options.connect(to)) => target??,
        error = left => return Err(error),
    };
    let idle = Duration::from_secs(idle);
    let mut copy = copy_bidirectional(&mut client, &mut target).idle_timeout(idle);
    let end = (&mut copy).await.map(drop);
    *copied = copy.copied();
    if end.is_err() {
        // Bytes are missing, and an orderly end would hide that.
        client.abort();
        target.abort();
    }
    end
}
