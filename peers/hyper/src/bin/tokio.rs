//! hyper on tokio's current-thread runtime, by the adapters of hyper-util.

use std::io;
use std::net::SocketAddr;

use hyper_util::rt::{TokioExecutor, TokioIo};
use peer_hyper::{BACKLOG, SHORTAGE, Task, announce, must, serve, task};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;
use tokio::time;

fn main() {
    let task = task(&[]);
    must(Builder::new_current_thread().enable_all().build()).block_on(accept(task))
}

async fn accept(task: Task) {
    let listener = must(bind(task.address));
    announce(must(listener.local_addr()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // The connection works without it, too.
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(task.service, TokioIo::new(stream), TokioExecutor::new()));
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG as u32)
}
