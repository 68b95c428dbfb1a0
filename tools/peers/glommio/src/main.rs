//! An echo server on glommio, one executor: a task per connection, each with its own buffer.

use std::io;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement, timer};
use listen::{Address, BUFFER, SHORTAGE};

fn main() {
    let address = listen::tcp();
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make();
    let executor = listen::ring(executor.map_err(io::Error::from));
    executor.run(async {
        let listener = listen::must(TcpListener::bind(address));
        listen::announce(&Address::Tcp(listen::must(listener.local_addr())));
        accept(listener).await
    })
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok(stream) => drop(glommio::spawn_local(echo(stream)).detach()),
            Err(_) => timer::sleep(SHORTAGE).await,
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}
