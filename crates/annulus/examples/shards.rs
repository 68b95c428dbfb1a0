//! An echo server on every core: a runtime a CPU, each connection on the one that has the fewest.
//!
//! `cargo run --release -p annulus --example shards`, then `nc 127.0.0.1 7000`.

use annulus::net::{ListenOptions, TcpStream};
use annulus::shards::{Doors, Spread};
use std::io;

fn main() -> io::Result<()> {
    let count = annulus::affinity::allowed()?.len();
    let doors = Doors::bind("127.0.0.1:7000", &ListenOptions::new(), count, Spread::Fewest)?;
    annulus::shards(count, async |shard| {
        println!("shard {} on CPU {:?}: {}", shard.index(), shard.cpu(), shard.driver());
        let mut incoming = doors.open(&shard)?;
        while let Some((stream, _peer)) = incoming.accept().await? {
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
