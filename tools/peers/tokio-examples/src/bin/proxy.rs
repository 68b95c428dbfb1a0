//! `examples/proxy.rs`, ported to tokio.

use socket2::{SockRef, TcpKeepalive};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long the target may take to accept, and how long a client that ends without sending a byte
/// stays connected.
const CONNECTING: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_millis(500);
/// An idle client or target that vanishes is detected after 25 seconds.
const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

#[tokio::main(flavor = "local")]
async fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or("127.0.0.1:7000".into());
    let target = args.next().unwrap_or("127.0.0.1:8000".into());
    let seconds = args.next().unwrap_or("60".into()).parse().map_err(io::Error::other)?;
    let most = args.next().unwrap_or("4000".into()).parse().map_err(io::Error::other)?;
    let listener = TcpListener::bind(listen).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    let target: Rc<str> = target.into();
    loop {
        let (client, mut peer) = listener.accept().await?;
        peer.set_ip(peer.ip().to_canonical());
        // Each connection holds the target's address.
        if Rc::strong_count(&target) > most {
            eprintln!("{peer}: refused, since {most} connections are open");
            continue;
        }
        let target = target.clone();
        tokio::task::spawn_local(async move {
            let last = Cell::new(Instant::now());
            let traffic = Traffic { up: Cell::new(0), down: Cell::new(0), last };
            let end = proxy(client, &target, &traffic, Duration::from_secs(seconds)).await;
            let (up, down) = (traffic.up.get(), traffic.down.get());
            let how = end.map_or_else(|error| error.to_string(), |()| "closed".into());
            eprintln!("{peer}: {up} bytes up, {down} bytes down, {how}");
        });
    }
}

/// Number of bytes that a connection has passed on, and when it last did so.
struct Traffic {
    up: Cell<u64>,
    down: Cell<u64>,
    last: Cell<Instant>,
}

async fn proxy(
    mut client: TcpStream,
    target: &str,
    traffic: &Traffic,
    idle: Duration,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    SockRef::from(&client).set_tcp_keepalive(&KEEP_ALIVE)?;
    let mut server = tokio::select! {
        connected = timeout(CONNECTING, TcpStream::connect(target)) => connected??,
        error = until_left(&client) => return Err(error),
    };
    server.set_nodelay(true)?;
    SockRef::from(&server).set_tcp_keepalive(&KEEP_ALIVE)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let both = async {
        tokio::try_join!(
            relay(from_client, to_server, &traffic.up, &traffic.last),
            relay(from_server, to_client, &traffic.down, &traffic.last),
        )
    };
    let end = tokio::select! {
        end = both => end.map(drop),
        () = silence(&traffic.last, idle) => Err(io::ErrorKind::TimedOut.into()),
    };
    if end.is_err() {
        // Data is missing, and an orderly end would make it look complete.
        client.set_zero_linger()?;
        server.set_zero_linger()?;
    }
    end
}

/// Returns an error some time after the client has ended without sending a byte. If the client has
/// sent something, that may be all that it has to send, so only a failure of its connection counts.
async fn until_left(client: &TcpStream) -> io::Error {
    match client.peek(&mut [0]).await {
        Ok(0) => {
            sleep(GRACE).await;
            io::ErrorKind::ConnectionAborted.into()
        }
        Ok(_) => {
            let failed = client.ready(Interest::ERROR).await.and_then(|_| client.take_error());
            failed.map_or_else(
                |error| error,
                |error| error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()),
            )
        }
        Err(error) => error,
    }
}

/// Forwards one direction until it ends.
async fn relay(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    bytes: &Cell<u64>,
    last: &Cell<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        bytes.set(bytes.get() + length as u64);
        last.set(Instant::now());
        to.write_all(&buffer[..length]).await?;
    }
}

/// Becomes ready once no byte has arrived for this long.
async fn silence(last: &Cell<Instant>, idle: Duration) {
    while last.get().elapsed() < idle {
        sleep_until(last.get() + idle).await;
    }
}
