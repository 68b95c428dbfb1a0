//! `examples/dns.rs`, ported to tokio.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

/// How long an upstream may take, how many times a query is sent, and how many queries are
/// forwarded at once, each with its own socket.
const PATIENCE: Duration = Duration::from_millis(800);
const ATTEMPTS: usize = 4;
const AT_ONCE: usize = 800;
/// After this many unanswered queries in a row, an upstream is asked last for a while.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(5);
/// Response codes of a server that cannot or will not answer: FORMERR, SERVFAIL, NOTIMP and
/// REFUSED.
const NO_ANSWER: [u8; 4] = [1, 2, 4, 5];
/// Number of bytes in a DNS header: identifier, flags and four counts.
const HEADER: usize = 12;
/// More than the longest datagram.
const LONGEST: usize = 1 << 16;

#[tokio::main(flavor = "local")]
async fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:5353".into());
    let upstreams: Result<Rc<[Upstream]>, _> =
        args.map(|it| it.parse().map(Upstream::new)).collect();
    let upstreams = upstreams.map_err(io::Error::other)?;
    if upstreams.is_empty() {
        return Err(io::Error::other("no upstream: dns LISTEN UPSTREAM..."));
    }
    let clients = Rc::new(UdpSocket::bind(address).await?);
    eprintln!("listening on {}", clients.local_addr()?);
    let limit = Arc::new(Semaphore::new(AT_ONCE));
    let mut buffer = vec![0; LONGEST];
    loop {
        // While too many queries wait for answers, further ones wait in the kernel, which drops any
        // excess.
        let permit = limit.clone().acquire_owned().await;
        let (length, client) = clients.recv_from(&mut buffer).await?;
        let query = buffer[..length].to_vec();
        let (clients, upstreams) = (clients.clone(), upstreams.clone());
        spawn_local(async move {
            let _permit = permit;
            if query.len() >= HEADER && query[2] & 0x80 == 0 {
                forward(&clients, &upstreams, query, client).await?;
            }
            io::Result::Ok(())
        });
    }
}

struct Upstream {
    address: SocketAddr,
    /// Number of queries in a row without an answer.
    failures: Cell<u32>,
    /// When it may be tried again.
    rests_until: Cell<Instant>,
}

impl Upstream {
    fn new(address: SocketAddr) -> Self {
        Self { address, failures: Cell::default(), rests_until: Cell::new(Instant::now()) }
    }

    /// Returns true if a query should ask this upstream first. After too many failures, only one
    /// query per rest period does.
    fn is_good(&self) -> bool {
        let now = Instant::now();
        if self.failures.get() < FAILURES {
            return true;
        }
        let is_over = self.rests_until.get() <= now;
        if is_over {
            self.rests_until.set(now + REST);
        }
        is_over
    }

    fn note(&self, has_answered: bool) {
        self.failures.set(if has_answered { 0 } else { self.failures.get() + 1 });
        if self.failures.get() == FAILURES {
            self.rests_until.set(Instant::now() + REST);
        }
    }
}

async fn forward(
    clients: &UdpSocket,
    upstreams: &[Upstream],
    mut query: Vec<u8>,
    client: SocketAddr,
) -> io::Result<()> {
    let (good, others): (Vec<_>, Vec<_>) = upstreams.iter().partition(|it| it.is_good());
    let mut order: VecDeque<_> = good.into_iter().chain(others).collect();
    let mut refusal = None;
    for _ in 0..ATTEMPTS {
        let Some(upstream) = order.pop_front() else { break };
        let answer =
            timeout(PATIENCE, ask(upstream.address, &query)).await.ok().and_then(Result::ok);
        upstream.note(answer.is_some());
        let Some(mut answer) = answer else {
            // Queues the upstream again behind the others, unless another upstream has refused the
            // query.
            order.extend(refusal.is_none().then_some(upstream));
            continue;
        };
        answer[..2].copy_from_slice(&query[..2]);
        if !is_refusal(&answer) {
            return clients.send_to(&answer, client).await.map(drop);
        }
        refusal.get_or_insert(answer);
    }
    if let Some(answer) = refusal {
        return clients.send_to(&answer, client).await.map(drop);
    }
    // Turns the query into an answer: SERVFAIL, recursion available.
    query[2] |= 0x80;
    query[3] = 0x82;
    clients.send_to(&query, client).await.map(drop)
}

/// Returns the answer of an upstream, or an error if nothing listens there.
async fn ask(upstream: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any = if upstream.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    let [.., a, b] = RandomState::new().hash_one(()).to_be_bytes();
    socket.send(&[&[a, b], &query[2..]].concat()).await?;
    let mut buffer = vec![0; LONGEST];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = &buffer[..length];
        let is_answer = answer.len() >= HEADER && answer[..2] == [a, b] && answer[2] & 0x80 != 0;
        // A refusal may come without the question, for example if the server cannot parse it.
        let has_no_question = || is_refusal(answer) && answer[4..6] == [0, 0];
        if is_answer && (question(answer) == question(query) || has_no_question()) {
            return Ok(answer.to_vec());
        }
    }
}

/// Returns true if a message of at least `HEADER` bytes has a code of `NO_ANSWER`.
fn is_refusal(answer: &[u8]) -> bool {
    NO_ANSWER.contains(&(answer[3] & 15))
}

/// Returns the name, type and class that a message asks for, in lower case.
fn question(message: &[u8]) -> Option<Vec<u8>> {
    let mut end = HEADER;
    while *message.get(end)? > 0 {
        end += usize::from(message[end]) + 1;
    }
    message.get(HEADER..end + 5).map(<[u8]>::to_ascii_lowercase)
}
