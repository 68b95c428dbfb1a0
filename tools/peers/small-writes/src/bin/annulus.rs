//! Small writes on annulus, as a beginner would write them: annulus's send gathers them by itself.

use std::io;
use std::net::SocketAddr;

use annulus::SharedBytes;
use annulus::io::AsyncRecv;
use annulus::net::{ListenOptions, SendGroup, SlowMembers, TcpListener, TcpStream};
use annulus::shards::{SenderToAll, ShardedListener, Shards, Spread, channel_to_all, cpus};
use listen::Address;
use peer_small_writes::{
    BACKLOG, BACKLOG_MESSAGES, BUSY_TASKS, GATHERED_BYTES, Protocol, SUBSCRIBES, Style, Task,
    announce, message_length, must, next_reply, work,
};
use tokio::sync::broadcast;

const SERVICES: [&str; 5] = ["fan-out", "fan-out-group", "fan-out-shards", "pieces", "busy"];

fn main() {
    let Task { address, protocol, style } = Task::from_arguments(&SERVICES);
    if style == Style::Shards {
        return must(fan_out_on_shards(address));
    }
    must(annulus::run(async {
        let listener = must(TcpListener::bind(address));
        announce(&Address::Tcp(must(listener.local_addr())));
        for _ in 0..BUSY_TASKS * usize::from(protocol == Protocol::Busy) {
            annulus::spawn(async {
                loop {
                    work();
                    annulus::task::yield_now().await;
                }
            });
        }
        let (channel, _) = broadcast::channel(BACKLOG_MESSAGES);
        let group = SendGroup::new(SlowMembers::Disconnect);
        loop {
            let (stream, _) = listener.accept().await?;
            match protocol {
                Protocol::FanOut if style == Style::Group => {
                    drop(annulus::spawn(fan_out_group(stream, group.clone())));
                }
                Protocol::FanOut => drop(annulus::spawn(fan_out(stream, channel.clone()))),
                Protocol::Pieces | Protocol::Busy => drop(annulus::spawn(pieces(stream))),
            }
        }
        #[expect(unreachable_code, reason = "the type of the block")]
        io::Result::Ok(())
    }))
}

async fn fan_out(mut stream: TcpStream, channel: broadcast::Sender<SharedBytes>) -> io::Result<()> {
    let first = stream.recv_exact(1).await?;
    let subscribes = first[0] == SUBSCRIBES;
    let mut messages = subscribes.then(|| channel.subscribe());
    stream.send(first).await?;
    if let Some(messages) = &mut messages {
        drop(channel);
        loop {
            let message = messages.recv().await.map_err(io::Error::other)?;
            stream.send(message).await?;
        }
    }
    while let Some(message) = stream.read_frame(GATHERED_BYTES, message_length).await? {
        _ = channel.send(message.into_shared());
    }
    Ok(())
}

async fn fan_out_group(mut stream: TcpStream, group: SendGroup) -> io::Result<()> {
    if subscribes(&mut stream).await? {
        return be_member(stream, group).await;
    }
    while let Some(message) = stream.read_frame(GATHERED_BYTES, message_length).await? {
        group.send(message.into_shared());
    }
    Ok(())
}

/// Serves on a shard per CPU that the process may use. A message is sent to each shard once.
fn fan_out_on_shards(address: SocketAddr) -> io::Result<()> {
    let count = cpus()?.len();
    let options = ListenOptions::new().backlog(BACKLOG as u32);
    let listener = ShardedListener::bind(address, &options, count, Spread::LeastConnections)?;
    announce(&Address::Tcp(listener.local_addr()));
    let (to_all, inboxes) = channel_to_all(count, BACKLOG_MESSAGES);
    Shards::new(count).run_with(inboxes, async |shard, mut inbox| {
        let group = SendGroup::new(SlowMembers::Disconnect);
        let members = group.clone();
        annulus::spawn(async move {
            while let Some(message) = inbox.recv().await {
                members.send(message);
            }
        });
        let mut listener = listener.open(&shard)?;
        while let Some((stream, _)) = listener.accept().await? {
            annulus::spawn(fan_out_sharded(stream, group.clone(), to_all.clone()));
        }
        io::Result::Ok(())
    })?;
    Ok(())
}

async fn fan_out_sharded(
    mut stream: TcpStream,
    group: SendGroup,
    to_all: SenderToAll<SharedBytes>,
) -> io::Result<()> {
    if subscribes(&mut stream).await? {
        return be_member(stream, group).await;
    }
    while let Some(message) = stream.read_frame(GATHERED_BYTES, message_length).await? {
        to_all.send(message.into_shared()).await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns true if the connection is a subscriber's.
async fn subscribes(stream: &mut TcpStream) -> io::Result<bool> {
    let first = stream.recv_exact(1).await?;
    let subscribes = first[0] == SUBSCRIBES;
    stream.send(first).await?;
    Ok(subscribes)
}

async fn be_member(stream: TcpStream, group: SendGroup) -> io::Result<()> {
    let (mut receiving, sending) = stream.into_split();
    group.add(&sending);
    while receiving.recv().await?.is_some() {}
    Ok(())
}

async fn pieces(mut stream: TcpStream) -> io::Result<()> {
    let mut wanted = 1;
    loop {
        let received = stream.fill_at_least(wanted).await?;
        if received.len() < wanted {
            return Ok(());
        }
        let Some((reply, rest)) = next_reply(received)? else {
            wanted = received.len() + 1;
            continue;
        };
        let used = received.len() - rest.len();
        for piece in reply {
            stream.send(piece).await?;
        }
        stream.consume(used);
        wanted = 1;
    }
}
