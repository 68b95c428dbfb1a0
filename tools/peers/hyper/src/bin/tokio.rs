//! hyper on tokio's current-thread runtime, by the adapters of hyper-util.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use peer_hyper::{BACKLOG, SHORTAGE, ServerConfig, Service, Task, announce, any_task, must, serve};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::time;
use tokio_rustls::TlsAcceptor;

fn main() {
    let task = any_task(&[]);
    must(Builder::new_current_thread().enable_all().build()).block_on(accept(task))
}

async fn accept(task: Task) {
    let listener = must(bind(task.address));
    announce(must(listener.local_addr()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // The connection works without TCP_NODELAY, too.
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection(task.service.clone(), stream));
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn connection(service: Service, stream: TcpStream) {
    match service.tls.clone() {
        None => serve(&service, TokioIo::new(stream), TokioExecutor::new()).await,
        // Boxed, because this large future would otherwise also enlarge the tasks of connections
        // without TLS.
        Some(config) => Box::pin(encrypted(service, stream, config)).await,
    }
}

async fn encrypted(service: Service, stream: TcpStream, config: Arc<ServerConfig>) {
    if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
        serve(&service, TokioIo::new(stream), TokioExecutor::new()).await;
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG as u32)
}
