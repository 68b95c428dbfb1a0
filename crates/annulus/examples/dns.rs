//! A DNS forwarder over UDP. Run `cargo run --release -p annulus --example dns -- 127.0.0.1:5353
//! 9.9.9.9:53 1.1.1.1:53`, then `dig @127.0.0.1 -p 5353 example.org`.
//!
//! Each query goes to an upstream from its own port and with its own identifier. A forger would
//! have to guess both. Replies that do not match the question are dropped, except refusals without
//! a question. If an upstream does not answer in time, or refuses the query (answers that it cannot
//! or will not resolve the name), the next one is asked.
//! After at most four attempts the client gets the first of these refusals, or SERVFAIL if there is
//! none. An upstream that has been silent three times in a row is asked last for five seconds; then
//! one query tries it again. Limits: 800 queries at once, each with a socket and a datagram;
//! further queries wait in the kernel, which drops any excess; 800 ms per attempt. SIGINT and
//! SIGTERM end the server; queries in progress get no answer.

use annulus::net::{Transmit, UdpSocket};
use annulus::signal::until_terminated;
use annulus::time::{Instant, timeout};
use annulus::{Lease, spawn};
use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long an upstream may take, how many attempts a query gets, and how many queries may be in
/// progress, each with its own socket.
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

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:5353".into());
    annulus::run(until_terminated(async {
        let upstreams: Result<Rc<[Upstream]>, _> =
            args.map(|it| it.parse().map(Upstream::new)).collect();
        let upstreams = upstreams.map_err(io::Error::other)?;
        if upstreams.is_empty() {
            return Err(io::Error::other("no upstream: dns LISTEN UPSTREAM..."));
        }
        let clients = Rc::new(UdpSocket::bind(address)?);
        clients.set_packet_info(true)?;
        eprintln!("listening on {}", clients.local_addr()?);
        let limit = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            // While too many queries wait for answers, further ones wait in the kernel, which drops
            // any excess.
            let permit = limit.clone().acquire_owned().await;
            let query = clients.recv_datagram().await?;
            // Sends the answer from the address that was asked: a socket on 0.0.0.0 has several.
            let to = Transmit::to(query.source);
            let (query, to) = (query.bytes, query.local.map_or(to, |asked| to.source(asked)));
            let (clients, upstreams) = (clients.clone(), upstreams.clone());
            spawn(async move {
                let _permit = permit;
                if query.len() >= HEADER && query[2] & 0x80 == 0 {
                    forward(&clients, &upstreams, query, &to).await?;
                }
                io::Result::Ok(())
            });
        }
    }))
}

struct Upstream {
    address: SocketAddr,
    /// Number of queries in a row without an answer.
    failures: Cell<u32>,
    /// When the upstream may be tried again.
    rests_until: Cell<Instant>,
}

impl Upstream {
    fn new(address: SocketAddr) -> Self {
        Self { address, failures: Cell::default(), rests_until: Cell::new(Instant::now()) }
    }

    /// Returns true if a query should ask this upstream first. After `FAILURES` failures in a row,
    /// returns true only once per `REST`.
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
    mut query: Lease,
    to: &Transmit,
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
            // Asks this upstream again after the others, unless an upstream has refused the query.
            order.extend(refusal.is_none().then_some(upstream));
            continue;
        };
        answer[..2].copy_from_slice(&query[..2]);
        if !is_refusal(&answer) {
            return clients.send_with(answer, to).await;
        }
        refusal.get_or_insert(answer);
    }
    if let Some(answer) = refusal {
        return clients.send_with(answer, to).await;
    }
    // Turns the query into an answer: SERVFAIL, recursion available.
    query[2] |= 0x80;
    query[3] = 0x82;
    clients.send_with(query, to).await
}

/// Returns the answer of an upstream, or an error, for example if nothing listens there.
async fn ask(upstream: SocketAddr, query: &[u8]) -> io::Result<Lease> {
    let any = if upstream.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(upstream).await?;
    let [.., a, b] = RandomState::new().hash_one(()).to_be_bytes();
    socket.send([&[a, b], &query[2..]].concat()).await?;
    loop {
        let answer = socket.recv().await?;
        let is_answer = answer.len() >= HEADER && answer[..2] == [a, b] && answer[2] & 0x80 != 0;
        // A refusal may come without the question, for example if the server cannot parse it.
        let has_no_question = || is_refusal(&answer) && answer[4..6] == [0, 0];
        if is_answer && (question(&answer) == question(query) || has_no_question()) {
            return Ok(answer);
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
