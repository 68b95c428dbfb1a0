//! Two shards whose clients are all accepted by the first. Shared with the benchmark.

use annulus::net::{TcpListener, TcpStream};
use annulus::shards::{Balance, Shard, Shards};
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

/// Serves clients that are all accepted on shard 0 of two. Returns the number of times that
/// connections moved, and the duration of each request.
pub(crate) fn skewed(
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
        Ok(all.join().expect("the thread panicked").expect("a client panicked").concat())
    });
    (moves.load(Ordering::Relaxed), done.unwrap().concat())
}
