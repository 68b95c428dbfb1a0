//! A TCP proxy: each connection goes on to a target, direction by direction.
//! `cargo run --release -p annulus --example proxy -- 127.0.0.1:7000 127.0.0.1:8000 60 4000 1`
//!
//! An end of one direction is passed on while the other continues. A connection over which nothing has gone for so many
//! seconds, or up to a quarter more, is closed. While so many are open, further ones are closed at once. The last argument is a number of
//! shards, each a thread on a CPU of its own. For each connection it prints how many bytes went each way, and how it ended.

use annulus::io::copy_bidirectional;
use annulus::net::{ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread};
use annulus::signal::until_terminated;
use std::io;
use std::sync::Arc;
use std::time::Duration;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or("127.0.0.1:7000".into());
    let target = args.next().unwrap_or("127.0.0.1:8000".into());
    let seconds = args.next().unwrap_or("60".into()).parse().map_err(io::Error::other)?;
    let most: usize = args.next().unwrap_or("4000".into()).parse().map_err(io::Error::other)?;
    let shards = args.next().unwrap_or("1".into()).parse().map_err(io::Error::other)?;
    let (options, spread) = (ListenOptions::new(), Spread::LeastConnections);
    let listener = ShardedListener::bind(listen, &options, shards, spread)?;
    eprintln!("listening on {}", listener.local_addr());
    let target: Arc<str> = target.into();
    annulus::shards(shards, async |shard| {
        let mut listener = listener.open(&shard)?;
        until_terminated(async {
            while let Some((client, peer)) = listener.accept().await? {
                // Each connection has the target's address, on whichever shard it is.
                let target = target.clone();
                if Arc::strong_count(&target) > most.saturating_add(1) {
                    eprintln!("{peer}: refused, since {most} connections are open");
                    continue;
                }
                annulus::spawn(async move {
                    let idle = Duration::from_secs(seconds);
                    let ((up, down), end) = proxy(client, &target, idle).await;
                    let how = match end {
                        Ok(()) => "closed".into(),
                        Err(error) if error.kind() == io::ErrorKind::TimedOut => "timed out".into(),
                        Err(error) => error.to_string(),
                    };
                    eprintln!("{peer}: {up} bytes up, {down} bytes down, {how}");
                });
            }
            io::Result::Ok(())
        })
        .await
    })?;
    Ok(())
}

/// The bytes that went up and down, and how it ended.
async fn proxy(
    mut client: TcpStream,
    target: &str,
    idle: Duration,
) -> ((u64, u64), io::Result<()>) {
    let mut target = match TcpStream::connect(target).await {
        Ok(target) => target,
        Err(error) => return ((0, 0), Err(error)),
    };
    let mut copy = copy_bidirectional(&mut client, &mut target).idle_timeout(idle);
    let end = (&mut copy).await;
    (copy.copied(), end.map(drop))
}
