//! A DNS forwarder over UDP: `cargo run --release -p annulus --example dns -- 127.0.0.1:5353 9.9.9.9:53 1.1.1.1:53`, then
//! `dig @127.0.0.1 -p 5353 example.org`.
//!
//! A query goes to an upstream under an identifier of its own, since those of two clients may be the same. Without an answer
//! in time the next upstream is asked; after some attempts the client gets SERVFAIL.

use annulus::net::UdpSocket;
use annulus::signal::until_terminated;
use annulus::time::timeout;
use annulus::{Lease, spawn};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// How long an upstream may take, how often a query is sent, and how many queries are forwarded at once.
const PATIENCE: Duration = Duration::from_millis(800);
const ATTEMPTS: usize = 4;
const AT_ONCE: usize = 1000;
/// The bytes of a DNS header: identifier, flags, four counts.
const HEADER: usize = 12;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:5353".into());
    annulus::run(until_terminated(async {
        let upstreams = futures_util::future::try_join_all(args.map(Upstream::open)).await?;
        let upstreams: Rc<[_]> = upstreams.into();
        if upstreams.is_empty() {
            return Err(io::Error::other("no upstream: dns LISTEN UPSTREAM..."));
        }
        let clients = Rc::new(UdpSocket::bind(address)?);
        eprintln!("listening on {}", clients.local_addr()?);
        let limit = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            // While too many queries wait for answers, further ones wait in the kernel, which drops what is too much.
            let permit = limit.clone().acquire_owned().await;
            let (query, client) = clients.recv_from().await?;
            let (clients, upstreams) = (clients.clone(), upstreams.clone());
            spawn(async move {
                let _permit = permit;
                if query.len() >= HEADER && query[2] & 0x80 == 0 {
                    forward(&clients, &upstreams, query, client).await?;
                }
                io::Result::Ok(())
            });
        }
    }))
}

async fn forward(
    clients: &UdpSocket,
    upstreams: &[Rc<Upstream>],
    mut query: Lease,
    client: SocketAddr,
) -> io::Result<()> {
    for upstream in upstreams.iter().cycle().take(ATTEMPTS) {
        if let Some(mut answer) = upstream.ask(&query).await {
            answer[..2].copy_from_slice(&query[..2]);
            return clients.send_to(answer, client).await;
        }
    }
    // The query becomes its answer: SERVFAIL, recursion available.
    query[2] |= 0x80;
    query[3] = 0x82;
    clients.send_to(query, client).await
}

/// A server that queries are forwarded to, and the queries that wait for its answers, by identifier.
struct Upstream {
    socket: UdpSocket,
    waiting: RefCell<HashMap<Vec<u8>, oneshot::Sender<Lease>>>,
}

impl Upstream {
    async fn open(address: String) -> io::Result<Rc<Self>> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address).await?;
        let upstream = Rc::new(Self { socket, waiting: RefCell::default() });
        spawn(upstream.clone().receive());
        Ok(upstream)
    }

    /// Hands answers to the queries that wait for them. What was not asked for, or comes too late, is dropped.
    async fn receive(self: Rc<Self>) {
        loop {
            match self.socket.recv().await {
                Ok(answer) if answer.len() >= HEADER => {
                    let waiting = self.waiting.borrow_mut().remove(&answer[..2]);
                    _ = waiting.map(|waiting| waiting.send(answer));
                }
                Ok(_) => {}
                // Nothing listens there: those that wait ask the next upstream at once.
                Err(_) => self.waiting.borrow_mut().clear(),
            }
        }
    }

    /// The answer; none if it does not come in time.
    async fn ask(&self, query: &[u8]) -> Option<Lease> {
        let (waiting, answer) = oneshot::channel();
        let id = self.unused_id();
        self.waiting.borrow_mut().insert(id.into(), waiting);
        let asked = async {
            self.socket.send([&id, &query[2..]].concat()).await.ok()?;
            answer.await.ok()
        };
        let answer = timeout(PATIENCE, asked).await;
        self.waiting.borrow_mut().remove(&id[..]);
        answer.ok().flatten()
    }

    /// An identifier that is not easily guessed and not in use.
    fn unused_id(&self) -> [u8; 2] {
        loop {
            let [.., a, b] = RandomState::new().hash_one(()).to_be_bytes();
            if !self.waiting.borrow().contains_key(&[a, b][..]) {
                return [a, b];
            }
        }
    }
}
