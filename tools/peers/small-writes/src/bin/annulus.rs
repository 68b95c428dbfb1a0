//! Small writes on annulus, as a beginner would write them: annulus's send gathers them by itself.

use std::io;

use annulus::SharedBytes;
use annulus::io::AsyncRecv;
use annulus::net::{SendGroup, SlowMembers, TcpListener, TcpStream};
use listen::Address;
use peer_small_writes::{
    BACKLOG_MESSAGES, BUSY_TASKS, GATHERED_BYTES, Protocol, SUBSCRIBES, Style, Task, announce,
    message_length, must, next_reply, work,
};
use tokio::sync::broadcast;

const SERVICES: [&str; 4] = ["fan-out", "fan-out-group", "pieces", "busy"];

fn main() {
    let Task { address, protocol, style } = Task::from_arguments(&SERVICES);
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
    let first = stream.recv_exact(1).await?;
    let subscribes = first[0] == SUBSCRIBES;
    stream.send(first).await?;
    if subscribes {
        let (mut receiving, sending) = stream.into_split();
        group.add(&sending);
        while receiving.recv().await?.is_some() {}
        return Ok(());
    }
    while let Some(message) = stream.read_frame(GATHERED_BYTES, message_length).await? {
        group.send(message.into_shared());
    }
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
