//! `examples/chat.rs`, ported to tokio, with three threads.

use bytes::Bytes;
use futures_util::StreamExt;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec};

/// Number of messages that may wait for a slow client, and how long sending one of them may take.
const QUEUE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);
/// Maximum number of bytes per line.
const LIMIT: usize = 4096;

/// The sender's address, and the line.
type Message = (SocketAddr, Bytes);

#[tokio::main(flavor = "multi_thread", worker_threads = 3)]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    let (room, _) = broadcast::channel(QUEUE);
    loop {
        let (stream, mut peer) = listener.accept().await?;
        peer.set_ip(peer.ip().to_canonical());
        tokio::spawn(chat(stream, peer, room.clone(), room.subscribe()));
    }
}

async fn chat(
    stream: TcpStream,
    peer: SocketAddr,
    room: broadcast::Sender<Message>,
    mut messages: broadcast::Receiver<Message>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE)?;
    let (mut from, mut to) = stream.into_split();
    let says = async {
        let mut lines = FramedRead::new(&mut from, LinesCodec::new_with_max_length(LIMIT));
        while let Some(line) = lines.next().await {
            let line = line.map_err(io::Error::other)?;
            _ = room.send((peer, Bytes::from(format!("{peer}: {line}\n"))));
        }
        Ok(())
    };
    let hears = async {
        loop {
            // An error means that this client is too far behind.
            let (from, message) = messages.recv().await.map_err(io::Error::other)?;
            if from != peer {
                timeout(PATIENCE, to.write_all(&message)).await??;
            }
        }
    };
    let ended = tokio::select! {
        end = says => end,
        end = hears => end,
    };
    if ended.is_err()
        && let Ok(stream) = from.reunite(to)
    {
        // Discards messages for a client that does not read.
        stream.set_zero_linger()?;
    }
    ended
}
