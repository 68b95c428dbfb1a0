//! Servers on several threads: on annulus shards, and on tokio runtimes that each have annulus as a
//! guest. Also tests the other listeners that `Incoming` accepts.

use crate::common;
use crate::servers::Directory;
use crate::tonic::greeter::{Client, Greeter};
use crate::tonic::hello;
use annulus::io::AsyncRecv;
use annulus::net::{Credentials, ListenOptions, TcpListener, TcpStream, UnixListener};
use annulus::shards::cpus;
use annulus::shards::{ShardedListener, Shards, Spread};
use annulus_compat::hyper::Executor;
use annulus_compat::hyper_util::UnixConnector;
use annulus_compat::tonic::{Channel, Deadlines};
use annulus_compat::tower::{serve, serve_with};
use annulus_compat::{Incoming, Listen, OnThread};
use axum::extract::{ConnectInfo, State};
use axum::serve::ListenerExt;
use axum::{Extension, Router, routing::get};
use common::{Failure, Outcome, as_guests, everywhere};
use http_body_util::{BodyExt, Empty};
use hyper_util::service::TowerToHyperService;
use std::cell::Cell;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};
use tower::Layer;

/// Maximum number of connections until every thread must have got one. The kernel distributes them
/// at random.
const MAX_CONNECTIONS: usize = 1000;

/// A listener that counts accepted connections.
struct Counted<L>(L, Arc<AtomicUsize>);

impl<L: Listen> Listen for Counted<L> {
    type Stream = L::Stream;
    type Peer = L::Peer;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(L::Stream, L::Peer)>> {
        let accepted = self.0.poll_accept(cx);
        if let Poll::Ready(Ok(_)) = &accepted {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        accepted
    }

    fn local_addr(&self) -> io::Result<L::Peer> {
        self.0.local_addr()
    }
}

/// A gRPC service, and a page that shows the client's address.
fn router() -> Router {
    let show = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string();
    Routes::new(Greeter).into_axum_router().route("/", get(show))
}

/// Makes a call over its own connection.
async fn call(address: SocketAddr) -> Result<Channel, Failure> {
    let channel = Channel::new(format!("http://{address}").parse()?)?;
    let reply = Client::new(channel.clone()).say(hello("you")).await?;
    assert_eq!(reply.into_inner().message, "hello, you");
    Ok(channel)
}

/// Requests the page over its own connection, and checks that it shows the client's address.
async fn page(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    let own = stream.local_addr()?.to_string();
    let mut answer = Vec::new();
    while !answer.ends_with(own.as_bytes()) {
        answer.extend_from_slice(&stream.recv().await?.ok_or("the connection has ended")?);
    }
    Ok(stream)
}

/// Runs clients on a separate thread, then stops the server, even if they fail.
fn with_clients<F: Future<Output = Outcome>>(
    stop: &CancellationToken,
    clients: impl FnOnce() -> F + Send,
    server: impl FnOnce(),
) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let _stop = stop.clone().drop_guard();
            annulus::run(clients()).unwrap();
        });
        server();
    });
}

#[test]
fn all_shards_serve_axum_and_tonic() {
    for spread in [Spread::LeastConnections, Spread::Hash] {
        let options = ListenOptions::new();
        let listener = ShardedListener::bind("127.0.0.1:0", &options, 2, spread).unwrap();
        let address = listener.local_addr();
        let (stop, accepted) = (CancellationToken::new(), [(), ()].map(|()| Arc::default()));
        let clients = async || {
            let mut open = Vec::new();
            while accepted.iter().any(|count: &Arc<AtomicUsize>| count.load(Ordering::Relaxed) == 0)
            {
                assert!(open.len() < MAX_CONNECTIONS, "a shard got no connection");
                open.push((page(address).await?, call(address).await?));
            }
            Ok(())
        };
        with_clients(&stop, clients, || {
            let shards = Shards::new(2);
            let served = shards.run(async |shard| {
                let listener = Counted(listener.open(&shard)?, accepted[shard.index()].clone());
                assert_eq!(listener.local_addr()?, address);
                let router = Deadlines::new(router());
                let server = serve_with(listener, move |peer: &SocketAddr| {
                    TowerToHyperService::new(Extension(ConnectInfo(*peer)).layer(router.clone()))
                });
                server.with_graceful_shutdown(stop.clone().cancelled_owned()).await
            });
            served.unwrap();
        });
    }
}

/// Serves on one thread per CPU, and sends requests until each thread has accepted a connection.
fn on_guests<S: Future<Output = Outcome>, C: Future<Output = Outcome>>(
    server: impl Fn(Incoming<Counted<TcpListener>>, CancellationToken) -> S + Sync,
    client: impl Fn(SocketAddr) -> C + Send,
) {
    let count = cpus().unwrap().len();
    let accepted: Vec<_> = (0..count).map(|_| Arc::<AtomicUsize>::default()).collect();
    let (stop, at) = (CancellationToken::new(), Mutex::new(None));
    let (listening, listen) = mpsc::channel::<SocketAddr>();
    let counts = &accepted;
    let clients = move || async move {
        // The iterator ends early if a thread fails.
        let addresses: Vec<_> = listen.iter().take(count).collect();
        let mut asked = 0;
        while counts.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
            assert!(asked < MAX_CONNECTIONS, "a thread got no connection");
            client(addresses[0]).await?;
            asked += 1;
        }
        Ok(())
    };
    let (stop, at, server) = (&stop, &at, &server);
    with_clients(stop, clients, move || {
        let served = annulus_tokio::run_each(count, async |index| {
            let incoming = {
                let mut at = at.lock().unwrap();
                let address = at.unwrap_or("127.0.0.1:0".parse()?);
                let listener = ListenOptions::new().reuse_port(true).bind(address)?;
                *at = Some(listener.local_addr()?);
                Incoming::new(Counted(listener, counts[index].clone()))
            };
            listening.send(incoming.local_addr()?)?;
            server(incoming, stop.clone()).await
        });
        served.unwrap().into_iter().for_each(|served: Outcome| served.unwrap());
    });
}

#[test]
fn axum_serve_on_one_guest_per_core() {
    on_guests(
        async |incoming, stop| {
            let service = router().into_make_service_with_connect_info::<SocketAddr>();
            let server = axum::serve(incoming.tap_io(|_| {}), service);
            Ok(server.with_graceful_shutdown(stop.cancelled_owned()).await?)
        },
        async |address| page(address).await.and(call(address).await).map(drop),
    );
}

#[test]
fn tonic_server_on_one_guest_per_core() {
    on_guests(
        async |incoming, stop| {
            let server = Server::builder().add_service(Greeter);
            Ok(server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await?)
        },
        async |address| call(address).await.map(drop),
    );
}

#[test]
fn axum_and_tonic_over_a_unix_socket() {
    as_guests(async || {
        let directory = Directory::new("unix")?;
        let paths = ["axum", "tonic"].map(|name| directory.path().join(name));
        let incoming = Incoming::new(UnixListener::bind(&paths[0])?);
        assert_eq!(incoming.local_addr()?.as_pathname(), Some(&*paths[0]));
        let router = Router::new().route("/", get(async || "hello"));
        tokio::spawn(async move { axum::serve(incoming, router).await });
        let client = hyper_util::client::legacy::Client::builder(Executor);
        let client = client.build(UnixConnector::new(&paths[0]));
        let request = hyper::Request::get("http://localhost/").body(Empty::<&[u8]>::new())?;
        let answer = client.request(request).await?.into_body().collect().await?;
        assert_eq!(answer.to_bytes(), "hello");

        let incoming = Incoming::new(UnixListener::bind(&paths[1])?);
        let from_here = |request: Request<()>| {
            let peer = request.extensions().get().copied().flatten();
            let is_this = peer.is_some_and(|peer: Credentials| peer.pid == std::process::id());
            if is_this { Ok(request) } else { Err(Status::permission_denied("another process")) }
        };
        let service = InterceptedService::new(Greeter, from_here);
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        let connector = UnixConnector::new(&paths[1]);
        let channel = Channel::with("http://localhost".parse()?, connector, |_| ())?;
        Client::new(channel).say(hello("you")).await?;
        Ok(())
    });
}

/// axum requires state to be `Clone`, `Send` and `Sync`.
#[test]
fn state_that_is_not_send_works_in_on_thread() {
    everywhere(async || {
        let count = async |State(count): State<OnThread<Rc<Cell<u32>>>>| {
            let count = count.try_ref().expect("used on another thread");
            count.update(|count| count + 1);
            count.get().to_string()
        };
        let router = Router::new().route("/", get(count));
        let router = router.with_state(OnThread::new(Rc::new(Cell::new(0))));
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(serve(listener, router).into_future());
        for expected in ["1", "2", "3"] {
            let mut stream = TcpStream::connect(address).await?;
            stream.send("GET / HTTP/1.0\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer, 1000).await?;
            assert!(answer.ends_with(expected.as_bytes()));
        }
        Ok(())
    });
}
