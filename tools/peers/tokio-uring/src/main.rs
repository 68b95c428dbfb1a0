//! An echo server on tokio-uring, one thread: a task per connection, each with its own buffer, as
//! in its examples.

use std::io;

use listen::{Address, BUFFER, SHORTAGE};
use tokio_uring::Runtime;
use tokio_uring::buf::BoundedBuf;
use tokio_uring::net::{TcpListener, TcpStream};

/// Size of the submission queue. If it is full, the library submits early.
const ENTRIES: u32 = 4096;

fn main() {
    let address = listen::tcp();
    let runtime = listen::ring(Runtime::new(tokio_uring::builder().entries(ENTRIES)));
    runtime.block_on(async {
        let listener = listen::must(TcpListener::bind(address));
        listen::announce(&Address::Tcp(listen::must(listener.local_addr())));
        accept(listener).await
    })
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio_uring::spawn(echo(stream))),
            Err(_) => tokio::time::sleep(SHORTAGE).await,
        }
    }
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let (received, filled) = stream.read(buffer).await;
        let length = match received? {
            0 => return Ok(()),
            length => length,
        };
        let (sent, slice) = stream.write_all(filled.slice(..length)).await;
        sent?;
        buffer = slice.into_inner();
    }
}
