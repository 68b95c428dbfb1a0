//! An echo server on compio, io_uring, one thread: a task per connection, each with its own buffer.

use std::io;
use std::net::SocketAddr;

use compio::BufResult;
use compio::driver::ProactorBuilder;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpSocket, TcpStream};
use compio::runtime::RuntimeBuilder;
use compio::{runtime, time};
use listen::{Address, BACKLOG, BUFFER, SHORTAGE};

fn main() {
    let address = listen::tcp();
    let mut proactor = ProactorBuilder::new();
    proactor.coop_taskrun(true).taskrun_flag(true);
    let runtime = listen::ring(RuntimeBuilder::new().with_proactor(proactor).build());
    runtime.block_on(async {
        let listener = listen::must(bind(address).await);
        listen::announce(&Address::Tcp(listen::must(listener.local_addr())));
        accept(listener).await
    })
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4().await?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).await?;
    socket.listen(BACKLOG).await
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => runtime::spawn(echo(stream)).detach(),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let BufResult(received, filled) = stream.read(buffer).await;
        if received? == 0 {
            return Ok(());
        }
        let BufResult(sent, written) = stream.write_all(filled).await;
        sent?;
        buffer = written;
        buffer.clear();
    }
}
