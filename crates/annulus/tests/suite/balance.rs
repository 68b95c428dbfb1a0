//! Connections move from a busy shard to an idle one: which ones move, that no byte is lost, and
//! how much time it saves.

use crate::common::drivers;
use annulus::Runtime;
use annulus::net::{TcpListener, TcpStream};
use annulus::shards::{Balance, Shard, Shards};
use annulus::sim::{Sim, run_on};
use annulus::time::Instant;
use std::future::pending;
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Requests in flight per connection, so that some have been read when it moves.
const DEPTH: u64 = 3;

/// A service that echoes its requests, which are numbers.
#[derive(Clone)]
struct Service {
    shards: Shard,
    balance: Option<Balance>,
    /// Rounds of work per request.
    work: u64,
    moves: Arc<AtomicUsize>,
}

impl Service {
    /// Serves a connection on the shard `at`.
    fn serve(
        self,
        at: usize,
        mut stream: TcpStream,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>>>> {
        Box::pin(async move {
            let mut connection = self.balance.as_ref().map(|balance| balance.connection(at));
            loop {
                let request = match stream.recv_exact(8).await {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                    request => request?,
                };
                black_box((0..self.work).fold(7, |sum: u64, round| black_box(sum ^ round)));
                stream.send(request).await?;
                if let Some(to) = connection.as_mut().and_then(|connection| connection.count()) {
                    self.moves.fetch_add(1, Ordering::Relaxed);
                    let onward = self.clone();
                    let serve = move |stream| onward.serve(to, stream);
                    self.shards.move_stream(stream, to, serve).await?;
                    return Ok(());
                }
            }
        })
    }
}

/// Sends numbers, some ahead of their replies, until `is_enough` returns true, and checks that all
/// come back in order. Returns how long each request took.
fn client(address: SocketAddr, is_enough: impl Fn() -> bool) -> Vec<Duration> {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut sent = Vec::new();
    let mut took = Vec::new();
    let mut requests = u64::MAX;
    for number in 0.. {
        if requests == u64::MAX && is_enough() {
            requests = number;
        }
        if number < requests {
            stream.write_all(&number.to_le_bytes()).unwrap();
            sent.push(Instant::now());
        }
        let Some(answered) = number.checked_sub(DEPTH) else { continue };
        if answered == requests {
            break;
        }
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(u64::from_le_bytes(answer), answered, "a reply was lost or reordered");
        took.push(sent[answered as usize].elapsed());
    }
    took
}

/// Serves clients that are all accepted on shard 0 of two. Returns how often connections moved and
/// how long each request took.
fn skewed(
    shards: Shards,
    balanced: bool,
    clients: u64,
    work: u64,
    is_enough: impl Fn(usize) -> bool + Copy + Send + Sync + 'static,
) -> (usize, Vec<Duration>) {
    let balance = balanced.then(|| Balance::new(2));
    let moves = Arc::<AtomicUsize>::default();
    let stop = CancellationToken::new();
    let done = shards.run(async |shards| {
        let service = Service {
            shards: shards.clone(),
            balance: balance.clone(),
            work,
            moves: Arc::clone(&moves),
        };
        if shards.index() != 0 {
            stop.run_until_cancelled(pending::<()>()).await;
            return io::Result::Ok(Vec::new());
        }
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let accept = async {
            loop {
                annulus::spawn(service.clone().serve(0, listener.accept().await?.0));
            }
        };
        let (ended, moves) = (stop.clone(), moves.clone());
        let all = thread::spawn(move || {
            let start = |_| {
                let moves = moves.clone();
                thread::spawn(move || client(address, || is_enough(moves.load(Ordering::Relaxed))))
            };
            let clients: Vec<_> = (0..clients).map(start).collect();
            let took: Result<Vec<_>, _> = clients.into_iter().map(|client| client.join()).collect();
            ended.cancel();
            took
        });
        let accepted: Option<io::Result<()>> = stop.run_until_cancelled(accept).await;
        assert!(accepted.is_none(), "{accepted:?}");
        Ok(all.join().expect("no panic").expect("no client panics").concat())
    });
    (moves.load(Ordering::Relaxed), done.unwrap().concat())
}

#[test]
fn connections_of_the_busy_shard_move_and_lose_no_byte() {
    for shards in drivers() {
        let (moves, took) = skewed(shards(2), true, 4, 0, |moves| moves >= 2);
        assert!(moves >= 2 && took.len() > 4, "{moves} moves, {} requests", took.len());
    }
}

/// Serves each of these shards' connections every 10 ms of virtual time for two seconds. Returns
/// where they are at the end and how often they moved.
fn settled(shards: usize, at: &[usize]) -> (Vec<usize>, usize) {
    let sim = Sim::builder(1).build();
    let settle = async {
        let balance = Balance::new(shards);
        let mut all: Vec<_> = at.iter().map(|at| (*at, balance.connection(*at))).collect();
        let mut moves = 0;
        for _ in 0..200 {
            for (at, connection) in &mut all {
                if let Some(to) = connection.count() {
                    moves += 1;
                    (*at, *connection) = (to, balance.connection(to));
                }
            }
            annulus::time::sleep(Duration::from_millis(10)).await;
        }
        let count = |shard| all.iter().filter(|(at, _)| *at == shard).count();
        io::Result::Ok(((0..shards).map(count).collect(), moves))
    };
    run_on(&sim, Runtime::builder(), settle).unwrap()
}

#[test]
fn connections_settle_and_then_none_moves() {
    assert_eq!(settled(2, &[0; 8]), (vec![4, 4], 4));
    assert_eq!(settled(2, &[0, 0, 0, 1]), (vec![2, 2], 1));
    assert_eq!(settled(2, &[0]), (vec![1, 0], 0), "the only connection moved");
    assert_eq!(
        settled(2, &[0, 1, 0]),
        (vec![2, 1], 0),
        "a connection moved for a difference of one"
    );
    assert_eq!(settled(1, &[0; 4]), (vec![4], 0));
    assert_eq!(settled(4, &[2; 16]), (vec![4; 4], 12));
}

/// Run with `--release --nocapture` on two cores. Rounds alternate between balanced and unbalanced.
#[test]
#[ignore = "a measurement, which means nothing on a busy machine"]
fn throughput_with_and_without_balancing() {
    let shards = drivers().pop().expect("a driver");
    for round in 0..6 {
        for balanced in [false, true] {
            let began = Instant::now();
            let is_enough = move |_| began.elapsed() > Duration::from_secs(1);
            let (moves, mut took) = skewed(shards(2), balanced, 8, 100_000, is_enough);
            let rate = took.len() as f64 / began.elapsed().as_secs_f64();
            took.sort_unstable();
            let [p50, p99] = [50, 99].map(|percent| took[took.len() * percent / 100]);
            println!("{round}, balanced {balanced}: {rate:.0}/s, {p50:?} {p99:?}, {moves} moves");
        }
    }
}
