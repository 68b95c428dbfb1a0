//! A chat over three shards. Run `cargo run --release -p annulus --example chat -- 127.0.0.1:7000`,
//! then `nc 127.0.0.1 7000` several times.
//!
//! A line from one client reaches all other clients on all shards, and is copied once. Each shard
//! sends the line to the group of its own clients, and to the other shards through channels.
//! Sending a line to a client wakes no task. Limits: one client per available descriptor, and
//! further clients wait; 4 KiB per line. A client that does not read is reset once 64 KiB are
//! waiting for it, and one that has vanished is disconnected. A silent client stays. SIGINT and
//! SIGTERM end the server.

use annulus::io::AsyncRecv;
use annulus::net::{KeepAlive, ListenOptions, SendGroup, SlowMembers, TcpStream};
use annulus::shards::{Receiver, Sender, ShardedListener, Spread, channel};
use annulus::signal::until_terminated;
use annulus::{SharedBytes, shards};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

const SHARDS: usize = 3;
/// Maximum number of lines queued for another shard. When the queue is full, clients that send
/// lines have to wait.
const QUEUE: usize = 256;
/// Maximum number of bytes queued for a client that does not read.
const BEHIND: usize = 64 * 1024;
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };
/// Maximum number of bytes per line.
const LIMIT: usize = 4096;

/// The clients of this shard, and a channel to each other shard.
struct Room {
    here: SendGroup,
    elsewhere: Vec<Sender<SharedBytes>>,
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    let (options, spread) = (ListenOptions::new().keepalive(KEEP_ALIVE), Spread::LeastConnections);
    let listener = ShardedListener::bind(address, &options, SHARDS, spread)?;
    eprintln!("listening on {}", listener.local_addr());
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..SHARDS).map(|_| channel(QUEUE)).unzip();
    let receivers = Mutex::new(receivers.into_iter().map(Some).collect::<Vec<_>>());
    shards(SHARDS, async |shard| {
        let here = SendGroup::new(SlowMembers::Disconnect).limit(BEHIND);
        let receiver = receivers.lock().expect("no panic")[shard.index()].take();
        annulus::spawn(pass_on(receiver.expect("a shard has one index"), here.clone()));
        let mut elsewhere = senders.clone();
        elsewhere.remove(shard.index());
        let room = Rc::new(Room { here, elsewhere });
        let mut listener = listener.open(&shard)?;
        let serves = async {
            while let Some((stream, mut peer)) = listener.accept().await? {
                // A dual-stack socket reports IPv4 addresses in their IPv6 form.
                peer.set_ip(peer.ip().to_canonical());
                annulus::spawn(chat(stream, peer, room.clone()));
            }
            io::Result::Ok(())
        };
        // The first shard accepts for all shards. When it ends, the others end too, so they need
        // not wait for signals.
        if shard.index() > 0 { serves.await } else { until_terminated(serves).await }
    })?;
    Ok(())
}

/// Passes the lines of other shards on to the clients of this one.
async fn pass_on(mut lines: Receiver<SharedBytes>, here: SendGroup) {
    while let Some(line) = lines.recv().await {
        here.send(line);
    }
}

async fn chat(stream: TcpStream, peer: SocketAddr, room: Rc<Room>) -> io::Result<()> {
    let (mut from, to) = stream.into_split();
    let member = room.here.add(&to);
    let mut lines = (&mut from).lines(LIMIT);
    // Also ends when the group disconnects the client because it does not read.
    while let Some(line) = lines.next_line().await? {
        let line = SharedBytes::from(format!("{peer}: {line}\n"));
        room.here.send_except(line.clone(), member);
        for shard in &room.elsewhere {
            shard.send(line.clone()).await.map_err(io::Error::other)?;
        }
    }
    Ok(())
}
