//! A TCP proxy: each connection goes on to a target, direction by direction.
//! `cargo run --release -p annulus --example proxy -- 127.0.0.1:7000 127.0.0.1:8000 60 4000 1`
//!
//! An end of one direction is passed on while the other continues, a reset as a reset. The target has five seconds to accept. A client that
//! has left by then is not connected. A connection over which nothing has gone for so many seconds, or up to a quarter more, is closed. While so many are open, further ones are closed at once. The last argument is a number of
//! shards, each a thread on a CPU of its own. For each connection it prints how many bytes went each way, and how it ended.

use annulus::io::copy_bidirectional;
use annulus::net::{ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread};
use annulus::signal::until_terminated;
use annulus::time::{sleep, timeout};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the target may take to accept.
const CONNECTING: Duration = Duration::from_secs(5);

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or("127.0.0.1:7000".into());
    let target = args.next().unwrap_or("127.0.0.1:8000".into());
    let idle = args.next().unwrap_or("60".into()).parse().map_err(io::Error::other)?;
    let most: usize = args.next().unwrap_or("4000".into()).parse().map_err(io::Error::other)?;
    let shards = args.next().unwrap_or("1".into()).parse().map_err(io::Error::other)?;
    let (options, spread) = (ListenOptions::new(), Spread::LeastConnections);
    let listener = ShardedListener::bind(listen, &options, shards, spread)?;
    eprintln!("listening on {}", listener.local_addr());
    let target: Arc<str> = target.into();
    annulus::shards(shards, async |shard| {
        let mut listener = listener.open(&shard)?;
        let serves = async {
            while let Some((client, peer)) = listener.accept().await? {
                // Each connection has the target's address, on whichever shard it is.
                let target = target.clone();
                if Arc::strong_count(&target) > most.saturating_add(1) {
                    eprintln!("{peer}: refused, since {most} connections are open");
                    continue;
                }
                annulus::spawn(async move {
                    let mut copied = (0, 0);
                    let end = proxy(client, &target, Duration::from_secs(idle), &mut copied).await;
                    let how = end.err().map_or("closed".into(), |error| error.kind().to_string());
                    let (up, down) = copied;
                    eprintln!("{peer}: {up} bytes up, {down} bytes down, {how}");
                });
            }
            io::Result::Ok(())
        };
        // The first shard accepts for all: its end is that of the others, which need no signals of their own.
        if shard.index() > 0 { serves.await } else { until_terminated(serves).await }
    })?;
    Ok(())
}

/// Counts the bytes that go up and down.
async fn proxy(
    mut client: TcpStream,
    target: &str,
    idle: Duration,
    copied: &mut (u64, u64),
) -> io::Result<()> {
    let mut target = tokio::select! {
        target = timeout(CONNECTING, TcpStream::connect(target)) => target??,
        error = until_left(&mut client) => return Err(error),
    };
    let mut copy = copy_bidirectional(&mut client, &mut target).idle_timeout(idle);
    let end = (&mut copy).await.map(drop);
    *copied = copy.copied();
    if end.is_err() {
        // Something is missing, and an end in order would look like the whole.
        client.abort();
        target.abort();
    }
    end
}

/// Ends once the client has: by a reset, or, after a moment, without having sent a byte. What it has sent may be all it has to say.
async fn until_left(client: &mut TcpStream) -> io::Error {
    match client.peek(1 << 16).await {
        Ok([]) => sleep(CONNECTING / 10).await,
        Ok(_) => pending().await,
        Err(error) => return error,
    }
    io::ErrorKind::ConnectionAborted.into()
}
