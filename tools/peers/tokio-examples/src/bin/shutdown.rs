//! `examples/shutdown.rs`, ported to tokio.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const WORK: Duration = Duration::from_secs(1);
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);
/// Maximum number of bytes per line.
const LIMIT: u64 = 1024;

#[tokio::main(flavor = "local")]
async fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:7000".into());
    let seconds = args.next().unwrap_or("5".into()).parse().map_err(io::Error::other)?;
    let (stop, mut connections) = (CancellationToken::new(), JoinSet::new());
    tokio::task::spawn_local(cancel_on_signal(stop.clone()));
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, _peer) = accepted?;
        connections.spawn_local(serve(stream, stop.clone()));
        // Drops the results of connections that have ended.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    match timeout(Duration::from_secs(seconds), all).await {
        Ok(()) => eprintln!("all connections have ended"),
        Err(_) => eprintln!("{} connections are aborted", connections.len()),
    }
    Ok(())
}

async fn cancel_on_signal(stop: CancellationToken) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let name = tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    };
    eprintln!("{name}: no longer accepting");
    stop.cancel();
    Ok(())
}

async fn serve(stream: TcpStream, stop: CancellationToken) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE)?;
    let mut stream = BufStream::new(stream);
    loop {
        let (mut line, mut limited) = (Vec::new(), (&mut stream).take(LIMIT));
        match stop.run_until_cancelled(limited.read_until(b'\n', &mut line)).await {
            None | Some(Ok(0)) => break,
            Some(read) => read?,
        };
        if line.len() as u64 == LIMIT && !line.ends_with(b"\n") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        sleep(WORK).await;
        stream.write_all(&line.to_ascii_uppercase()).await?;
        stream.flush().await?;
    }
    stream.shutdown().await
}
