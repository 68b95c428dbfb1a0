//! An echo server on every core: a runtime a CPU, each connection on the one with the fewest.
//!
//! `cargo run --release -p annulus --example shards`, then `nc 127.0.0.1 7000`.

use annulus::net::{ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread};
use std::io;

fn main() -> io::Result<()> {
    let count = annulus::affinity::allowed()?.len();
    let (options, spread) = (ListenOptions::new(), Spread::LeastConnections);
    let listener = ShardedListener::bind("127.0.0.1:7000", &options, count, spread)?;
    annulus::shards(count, async |shard| {
        println!("shard {} on CPU {:?}: {}", shard.index(), shard.cpu(), shard.driver());
        let mut listener = listener.open(&shard)?;
        while let Some((stream, _peer)) = listener.accept().await? {
            annulus::spawn(echo(stream));
        }
        io::Result::Ok(())
    })?;
    Ok(())
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}
