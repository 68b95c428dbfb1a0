//! HttpArena's profiles of HTTP/1.1 on annulus and httparse: one runtime per CPU, and a task per
//! connection.
//!
//! `cargo run --release -- 127.0.0.1:8080`, then `curl '127.0.0.1:8080/baseline11?a=13&b=42'`. The
//! directory in the variable DATA, by default `/data`, has `dataset.json`. Limits: 16 KiB per
//! request head; bodies of any length, which are not kept in memory. Clients may take any time.

mod answer;
mod body;
mod connection;
mod refusal;
mod request;

use annulus::net::{ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Shards, Spread};
use annulus::signal::until_terminated;
use annulus::time::timeout;
use answer::Dataset;
use connection::Connection;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Connections that may wait to be accepted, for clients that connect all at once.
const BACKLOG: u32 = 65_535;
/// Time in which a client must close its connection after the last answer.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("0.0.0.0:8080".into());
    let dataset = Arc::new(Dataset::read()?);
    let shards = annulus::shards::cpus()?.len();
    let options = ListenOptions::new().backlog(BACKLOG);
    let listener = ShardedListener::bind(address, &options, shards, Spread::Hash)?;
    eprintln!("listening on {}", listener.local_addr());
    // Not pinned: where clients share the CPUs, a pinned shard would wait for them.
    Shards::new(shards).run(async |shard| {
        let mut listener = listener.open(&shard)?;
        until_terminated(async {
            while let Some((stream, _peer)) = listener.accept().await? {
                annulus::spawn(serve(stream, Connection::new(dataset.clone())));
            }
            Ok(())
        })
        .await
    })?;
    Ok(())
}

/// Answers the requests of a client until it leaves or a request ends the connection.
async fn serve(mut stream: TcpStream, mut connection: Connection) -> io::Result<()> {
    let (mut answers, mut wanted) = (Vec::new(), 1);
    while connection.is_open() {
        // Requests are parsed in the memory into which the kernel received them.
        let received = stream.fill_at_least(wanted).await?;
        if received.len() < wanted {
            return Ok(());
        }
        let used = connection.answer(received, &mut answers);
        // Bytes that do not suffice stay in the stream until more have arrived.
        wanted = if used == 0 { received.len() + 1 } else { 1 };
        stream.consume(used);
        // The answers to pipelined requests leave together.
        stream.write_all(&answers).await?;
        answers.clear();
    }
    stream.shutdown().await?;
    // Without reading the rest, the client could see a reset before the last answer.
    let rest = async { while let Ok(Some(_)) = stream.recv().await {} };
    Ok(timeout(PATIENCE, rest).await?)
}
