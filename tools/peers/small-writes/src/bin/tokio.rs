//! Small writes on tokio, one thread, as a beginner and as an expert would write them.

use std::io;

use bytes::{Bytes, BytesMut};
use listen::Address;
use peer_small_writes::{
    BACKLOG, BACKLOG_MESSAGES, BUSY_TASKS, GATHERED_BYTES, Protocol, RECEIVE_BYTES, SERVICES,
    SHORTAGE, SUBSCRIBES, Style, Task, announce, must, next_message, next_reply, work,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time;

fn main() {
    let task = Task::from_arguments(&[&SERVICES[..], &["busy"]].concat());
    let runtime = must(Builder::new_current_thread().enable_all().build());
    runtime.block_on(async {
        let listener = must(bind(task));
        announce(&Address::Tcp(must(listener.local_addr())));
        for _ in 0..BUSY_TASKS * usize::from(task.protocol == Protocol::Busy) {
            tokio::spawn(async {
                loop {
                    work();
                    tokio::task::yield_now().await;
                }
            });
        }
        let (channel, _) = broadcast::channel(BACKLOG_MESSAGES);
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                time::sleep(SHORTAGE).await;
                continue;
            };
            match task.protocol {
                Protocol::FanOut => {
                    drop(tokio::spawn(fan_out(
                        stream,
                        channel.clone(),
                        task.style == Style::Gathering,
                    )));
                }
                Protocol::Pieces | Protocol::Busy => {
                    drop(tokio::spawn(pieces(stream, task.style == Style::Gathering)))
                }
            }
        }
    })
}

fn bind(task: Task) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(task.address)?;
    socket.listen(BACKLOG as u32)
}

async fn fan_out(
    mut stream: TcpStream,
    channel: broadcast::Sender<Bytes>,
    gathers: bool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let first = stream.read_u8().await?;
    if first == SUBSCRIBES {
        let messages = channel.subscribe();
        drop(channel);
        stream.write_u8(first).await?;
        return match gathers {
            true => write_gathered(stream, messages).await,
            false => write_each(stream, messages).await,
        };
    }
    stream.write_u8(first).await?;
    let mut received = BytesMut::with_capacity(RECEIVE_BYTES);
    while stream.read_buf(&mut received).await? > 0 {
        while let Some(message) = next_message(&mut received)? {
            _ = channel.send(message);
        }
        received.reserve(RECEIVE_BYTES);
    }
    Ok(())
}

async fn write_each(
    mut stream: TcpStream,
    mut messages: broadcast::Receiver<Bytes>,
) -> io::Result<()> {
    loop {
        let message = messages.recv().await.map_err(io::Error::other)?;
        stream.write_all(&message).await?;
    }
}

async fn write_gathered(
    mut stream: TcpStream,
    mut messages: broadcast::Receiver<Bytes>,
) -> io::Result<()> {
    let mut gathered = Vec::new();
    loop {
        gathered.extend_from_slice(&messages.recv().await.map_err(io::Error::other)?);
        while gathered.len() < GATHERED_BYTES {
            match messages.try_recv() {
                Ok(message) => gathered.extend_from_slice(&message),
                Err(TryRecvError::Empty) => break,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        stream.write_all(&gathered).await?;
        gathered.clear();
    }
}

async fn pieces(mut stream: TcpStream, gathers: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(RECEIVE_BYTES);
    let mut gathered = Vec::new();
    while stream.read_buf(&mut received).await? > 0 {
        let mut rest = &received[..];
        while let Some((reply, after)) = next_reply(rest)? {
            rest = after;
            for piece in reply {
                match gathers {
                    true => gathered.extend_from_slice(piece),
                    false => stream.write_all(piece).await?,
                }
            }
            if gathered.len() >= GATHERED_BYTES {
                stream.write_all(&gathered).await?;
                gathered.clear();
            }
        }
        let used = received.len() - rest.len();
        stream.write_all(&gathered).await?;
        gathered.clear();
        received.drain(..used);
    }
    Ok(())
}
