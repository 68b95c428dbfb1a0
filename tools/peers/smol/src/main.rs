//! An echo server on smol, one thread: a task per connection on a local executor, each with its own
//! buffer.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;

use listen::{Address, BACKLOG, BUFFER, SHORTAGE};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, LocalExecutor, Timer};

fn main() {
    let address = listen::tcp();
    let executor = Rc::new(LocalExecutor::new());
    smol::block_on(executor.run(async {
        let listener = listen::must(bind(address));
        listen::announce(&Address::Tcp(listen::must(listener.get_ref().local_addr())));
        accept(listener, &executor).await
    }))
}

/// The standard library chooses a small backlog; a second `listen` changes it.
fn bind(address: SocketAddr) -> io::Result<Async<TcpListener>> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Async::new(listener)
}

async fn accept(listener: Async<TcpListener>, executor: &LocalExecutor<'_>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => executor.spawn(echo(stream)).detach(),
            Err(_) => drop(Timer::after(SHORTAGE).await),
        }
    }
}

async fn echo(mut stream: Async<TcpStream>) -> io::Result<()> {
    stream.get_ref().set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}
