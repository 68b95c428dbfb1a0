//! An echo server on monoio, io_uring, one thread: a task per connection, each with its own buffer,
//! as in monoio's README.

use std::io;

use io_uring::{cqueue, squeue};
use listen::{Address, BACKLOG, BUFFER, SHORTAGE};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};
use monoio::{IoUringDriver, RuntimeBuilder, time};

fn main() {
    let address = listen::tcp();
    let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(ring());
    let mut runtime = listen::ring(builder.enable_timer().build());
    let options = ListenerOpts::new().reuse_port(false).backlog(BACKLOG);
    runtime.block_on(async {
        let listener = listen::must(TcpListener::bind_with_config(address, &options));
        listen::announce(&Address::Tcp(listen::must(listener.local_addr())));
        accept(listener).await
    })
}

/// Monoio leaves the ring's flags to its user. These suit one thread, and make a request cheaper by
/// a tenth.
fn ring() -> io_uring::Builder {
    let mut builder = io_uring::IoUring::<squeue::Entry, cqueue::Entry>::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    builder
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(monoio::spawn(echo(stream))),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut result;
    loop {
        (result, buffer) = stream.read(buffer).await;
        if result? == 0 {
            return Ok(());
        }
        (result, buffer) = stream.write_all(buffer).await;
        result?;
        buffer.clear();
    }
}
