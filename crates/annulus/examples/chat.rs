//! A chat over three shards: `cargo run --release -p annulus --example chat -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000`
//! several times.
//!
//! A line that one client sends reaches all others, on whatever shard they are; it is copied once. The room is a channel of
//! `tokio::sync`, which works between annulus' shards as well. Limits: as many clients as descriptors, others wait; 4 KiB a line; a
//! client that is 256 messages or ten seconds behind is disconnected, as is one that has vanished. A silent one stays. SIGINT and SIGTERM end it.

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
/// Messages that may wait for a client that is slow, and how long one of them may.
const QUEUE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);
/// A client that has vanished is noticed after 25 seconds without a byte.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };
/// The most bytes of a line.
const LIMIT: usize = 4096;

/// The address of the speaker, and the line.
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
                // On a socket for both families, an IPv4 address comes in the form of IPv6.
                peer.set_ip(peer.ip().to_canonical());
                annulus::spawn(chat(stream, peer, room.clone(), room.subscribe()));
            }
            io::Result::Ok(())
        };
        // The first shard accepts for all: its end is that of the others, which need no signals of their own.
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
            // An error means that this client lags behind.
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
        // Messages for a client that does not read are discarded: a close would wait for them.
        stream.abort();
    }
    ended
}
