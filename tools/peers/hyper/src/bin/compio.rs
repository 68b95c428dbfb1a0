//! hyper on compio, io_uring, by cyper-core.

use std::io;
use std::net::SocketAddr;

use compio::driver::ProactorBuilder;
use compio::net::{TcpListener, TcpSocket};
use compio::runtime::{self, RuntimeBuilder};
use compio::time;
use cyper_core::{CompioExecutor, HyperStream};
use peer_hyper::{BACKLOG, SHORTAGE, Task, announce, must, on_ring, serve, task};

fn main() {
    let task = task(&[]);
    let mut proactor = ProactorBuilder::new();
    proactor.coop_taskrun(true).taskrun_flag(true);
    on_ring(RuntimeBuilder::new().with_proactor(proactor).build()).block_on(accept(task))
}

async fn accept(task: Task) {
    let listener = must(bind(task.address).await);
    announce(must(listener.local_addr()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // The connection works without TCP_NODELAY, too.
                let _ = stream.set_nodelay(true);
                let (service, stream) = (task.service.clone(), HyperStream::new_plain(stream));
                let connection = async move { serve(&service, stream, CompioExecutor).await };
                runtime::spawn(connection).detach();
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4().await?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).await?;
    socket.listen(BACKLOG).await
}
