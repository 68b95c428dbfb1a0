//! A chat over three shards. Run `cargo run --release -p annulus --example chat -- 127.0.0.1:7000`,
//! then `nc 127.0.0.1 7000` several times.
//!
//! A line from one client reaches all other clients on all shards, and is copied once. The room is
//! a channel of `tokio::sync`, which also works between shards of annulus. Limits: one client per
//! available descriptor, and further clients wait; 4 KiB per line. A client is disconnected if it
//! is 256 messages or ten seconds behind, or if it has vanished. A silent client stays. SIGINT and
//! SIGTERM end the server.

use annulus::SharedBytes;
use annulus::io::AsyncRecv;
use annulus::net::{KeepAlive, ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread};
use annulus::signal::until_terminated;
use annulus::time::timeout;
use futures_util::future::select;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::broadcast;

const SHARDS: usize = 3;
/// How many messages may wait for a slow client, and how long sending one of them may take.
const QUEUE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);
/// A vanished client is detected after 25 seconds without a byte.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };
/// Maximum number of bytes per line.
const LIMIT: usize = 4096;

/// The sender's address, and the line.
type Message = (SocketAddr, SharedBytes);

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    let (options, spread) = (ListenOptions::new().keepalive(KEEP_ALIVE), Spread::LeastConnections);
    let listener = ShardedListener::bind(address, &options, SHARDS, spread)?;
    eprintln!("listening on {}", listener.local_addr());
    let (room, _) = broadcast::channel(QUEUE);
    annulus::shards(SHARDS, async |shard| {
        let mut listener = listener.open(&shard)?;
        let serves = async {
            while let Some((stream, mut peer)) = listener.accept().await? {
                // A dual-stack socket reports IPv4 addresses in their IPv6 form.
                peer.set_ip(peer.ip().to_canonical());
                annulus::spawn(chat(stream, peer, room.clone(), room.subscribe()));
            }
            io::Result::Ok(())
        };
        // The first shard accepts for all shards. When it ends, the others end too, so they need
        // not wait for signals.
        if shard.index() > 0 { serves.await } else { until_terminated(serves).await }
    })?;
    Ok(())
}

async fn chat(
    stream: TcpStream,
    peer: SocketAddr,
    room: broadcast::Sender<Message>,
    mut messages: broadcast::Receiver<Message>,
) -> io::Result<()> {
    let (mut from, mut to) = stream.split();
    let says = async {
        let mut lines = (&mut from).lines(LIMIT);
        while let Some(line) = lines.next_line().await? {
            _ = room.send((peer, SharedBytes::from(format!("{peer}: {line}\n").into_bytes())));
        }
        Ok(())
    };
    let hears = async {
        loop {
            // An error means that this client is too far behind.
            let (from, message) = messages.recv().await.map_err(io::Error::other)?;
            if from != peer {
                timeout(PATIENCE, to.send(message)).await??;
            }
        }
    };
    let ended = select(pin!(says), pin!(hears)).await.factor_first().0;
    if ended.is_err()
        && let Ok(stream) = TcpStream::reunite(from, to)
    {
        // Discards queued messages for a client that does not read. Closing the stream would wait
        // until they are sent.
        stream.abort();
    }
    ended
}
