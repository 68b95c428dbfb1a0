//! Small writes on monoio, io_uring, one thread, as a beginner and as an expert would write them.

use std::io;

use bytes::{Bytes, BytesMut};
use io_uring::{cqueue, squeue};
use listen::Address;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};
use monoio::{IoUringDriver, RuntimeBuilder, time};
use peer_small_writes::{
    BACKLOG, BACKLOG_MESSAGES, GATHERED_BYTES, Protocol, RECEIVE_BYTES, SERVICES, SHORTAGE,
    SUBSCRIBES, Style, Task, announce, must, next_message, next_reply, on_ring,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

fn main() {
    let task = Task::from_arguments(&SERVICES);
    // These flags suit one thread; monoio leaves them to its user.
    let mut ring = io_uring::IoUring::<squeue::Entry, cqueue::Entry>::builder();
    ring.setup_single_issuer().setup_defer_taskrun();
    let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(ring);
    let mut runtime = on_ring(builder.enable_timer().build());
    let options = ListenerOpts::new().reuse_port(false).backlog(BACKLOG);
    runtime.block_on(async {
        let listener = must(TcpListener::bind_with_config(task.address, &options));
        announce(&Address::Tcp(must(listener.local_addr())));
        accept(listener, task).await
    })
}

async fn accept(listener: TcpListener, task: Task) {
    let (channel, _) = broadcast::channel(BACKLOG_MESSAGES);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(SHORTAGE).await;
            continue;
        };
        match task.protocol {
            Protocol::FanOut => {
                drop(monoio::spawn(fan_out(
                    stream,
                    channel.clone(),
                    task.style == Style::Gathering,
                )));
            }
            Protocol::Pieces | Protocol::Busy => {
                drop(monoio::spawn(pieces(stream, task.style == Style::Gathering)))
            }
        }
    }
}

async fn fan_out(
    mut stream: TcpStream,
    channel: broadcast::Sender<Bytes>,
    gathers: bool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(RECEIVE_BYTES);
    let mut result;
    (result, buffer) = stream.read(buffer).await;
    if result? == 0 {
        return Ok(());
    }
    let subscribes = buffer[0] == SUBSCRIBES;
    let messages = channel.subscribe();
    let mut received = BytesMut::from(&buffer[1..]);
    buffer.truncate(1);
    (result, buffer) = stream.write_all(buffer).await;
    result?;
    if subscribes {
        drop(channel);
        return match gathers {
            true => write_gathered(stream, messages).await,
            false => write_each(stream, messages).await,
        };
    }
    drop(messages);
    loop {
        buffer.clear();
        let read;
        (read, buffer) = stream.read(buffer).await;
        if read? == 0 {
            return Ok(());
        }
        received.extend_from_slice(&buffer);
        while let Some(message) = next_message(&mut received)? {
            _ = channel.send(message);
        }
    }
}

async fn write_each(
    mut stream: TcpStream,
    mut messages: broadcast::Receiver<Bytes>,
) -> io::Result<()> {
    loop {
        let message = messages.recv().await.map_err(io::Error::other)?;
        stream.write_all(message).await.0?;
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
        let result;
        (result, gathered) = stream.write_all(gathered).await;
        result?;
        gathered.clear();
    }
}

async fn pieces(mut stream: TcpStream, gathers: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(RECEIVE_BYTES);
    let (mut received, mut gathered) = (Vec::new(), Vec::new());
    loop {
        buffer.clear();
        let read;
        (read, buffer) = stream.read(buffer).await;
        if read? == 0 {
            return Ok(());
        }
        received.extend_from_slice(&buffer);
        let mut rest = &received[..];
        while let Some((reply, after)) = next_reply(rest)? {
            rest = after;
            for piece in reply {
                match gathers {
                    true => gathered.extend_from_slice(piece),
                    false => drop(stream.write_all(piece).await.0?),
                }
            }
        }
        let used = received.len() - rest.len();
        received.drain(..used);
        if !gathered.is_empty() {
            let result;
            (result, gathered) = stream.write_all(gathered).await;
            result?;
            gathered.clear();
        }
    }
}
