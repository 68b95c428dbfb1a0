//! hyper on annulus: on io_uring, on epoll, or as a guest of tokio's current-thread runtime.
//! `uring-serve`, the server of feature `tower`, serves only HTTP/1 without TLS, and frees the
//! memory that hyper holds for idle connections.

use annulus::net::{ListenOptions, TcpListener, TcpStream};
use annulus::{DriverChoice, Runtime, time};
use annulus_compat::hyper::{Executor, Io};
use annulus_compat::rustls::TlsAcceptor;
use annulus_compat::tower::serve_hyper;
use hyper::service::service_fn;
use peer_hyper::{
    BACKLOG, SHORTAGE, ServerConfig, Service, Task, announce, answer, any_task, must, serve,
};
use std::sync::Arc;

const MODES: [&str; 5] = ["uring", "epoll", "guest", "guest-tasks", "uring-serve"];

/// Spawns a connection's task.
type Spawn = fn(Service, TcpStream);

fn main() {
    let task = any_task(&MODES);
    let of_annulus: Spawn = |service, stream| drop(annulus::spawn(connection(service, stream)));
    // In the mode `guest`, connections are tasks of tokio.
    let of_tokio: Spawn =
        |service, stream| drop(tokio::task::spawn_local(connection(service, stream)));
    match task.mode.as_deref() {
        Some("uring-serve") => alone(DriverChoice::Uring, serve_all(task)),
        Some("guest") => must(annulus_tokio::run(accept(task, of_tokio))),
        Some("guest-tasks") => must(annulus_tokio::run(accept(task, of_annulus))),
        Some("epoll") => alone(DriverChoice::Epoll, accept(task, of_annulus)),
        _ => alone(DriverChoice::Uring, accept(task, of_annulus)),
    }
}

fn alone(driver: DriverChoice, server: impl Future<Output = ()>) {
    must(Runtime::builder().driver(driver).build()).block_on(server)
}

fn listen(task: &Task) -> TcpListener {
    let listener = must(ListenOptions::new().backlog(BACKLOG as u32).bind(task.address));
    announce(must(listener.local_addr()));
    listener
}

async fn serve_all(task: Task) {
    let server = serve_hyper(listen(&task), service_fn(answer));
    must(server.configure_http1(|http| http.pipeline_flush(true)).await);
}

async fn accept(task: Task, spawn: Spawn) {
    let listener = listen(&task);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => spawn(task.service.clone(), stream),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn connection(service: Service, stream: TcpStream) {
    match service.tls.clone() {
        None => serve(&service, Io::new(stream), Executor).await,
        // Boxed, because this large future would otherwise also enlarge the tasks of connections
        // without TLS.
        Some(config) => Box::pin(encrypted(service, stream, config)).await,
    }
}

async fn encrypted(service: Service, stream: TcpStream, config: Arc<ServerConfig>) {
    if let Ok(stream) = TlsAcceptor::new(config).accept(stream).await {
        serve(&service, Io::new(stream), Executor).await;
    }
}
