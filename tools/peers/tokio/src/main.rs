//! An echo server on tokio, one thread: a task per connection, each with its own buffer; for UDP
//! one task and one buffer.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use listen::{Address, BACKLOG, BUFFER, SHORTAGE};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixListener};
use tokio::runtime::Builder;
use tokio::time;

/// More than the longest datagram, so that none is truncated.
const DATAGRAM: usize = 1 << 16;

fn main() {
    let address = listen::any();
    let runtime = listen::must(Builder::new_current_thread().enable_all().build());
    runtime.block_on(async {
        match address {
            Address::Tcp(address) => tcp(address).await,
            Address::Udp(address) => udp(address).await,
            Address::Unix(path) => unix(path).await,
        }
    })
}

async fn tcp(address: SocketAddr) {
    let listener = listen::must(bind(address));
    listen::announce(&Address::Tcp(listen::must(listener.local_addr())));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(undelayed(stream))),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn unix(path: PathBuf) {
    let listener = listen::must(UnixListener::bind(&path));
    listen::announce(&Address::Unix(path));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(echo(stream))),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn udp(address: SocketAddr) {
    let socket = listen::must(UdpSocket::bind(address).await);
    listen::announce(&Address::Udp(listen::must(socket.local_addr())));
    let mut buffer = vec![0; DATAGRAM];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            // A datagram that cannot be sent is dropped: the next one may have another destination.
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG as u32)
}

async fn undelayed(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    echo(stream).await
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}
