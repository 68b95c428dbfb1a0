//! A server past its capacity, built like the examples: it serves a fixed number of connections,
//! and refuses the rest at once.

use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Link, Sim, run_on};
use annulus::task::JoinSet;
use annulus::time::{Instant, sleep};
use annulus::{Runtime, spawn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a request takes. The server handles one at a time.
const WORK: Duration = Duration::from_millis(1);
/// The time between two clients at 1.2 times the capacity.
const PAUSE: Duration = Duration::from_micros(833);
const CLIENTS: usize = 1200;

/// Serves at most `most` connections at a time. Each sends one byte and receives one.
async fn serve(listener: TcpListener, most: usize) -> io::Result<()> {
    let worker = Rc::new(Mutex::new(()));
    loop {
        let (mut stream, _) = listener.accept().await?;
        let place = (Rc::strong_count(&worker) <= most).then(|| worker.clone());
        spawn(async move {
            stream.recv_exact(1).await?;
            let Some(worker) = place else { return stream.send("-").await };
            let turn = worker.lock().await;
            sleep(WORK).await;
            drop(turn);
            stream.send("+").await
        });
    }
}

/// Returns whether the request was served, and how long the answer took.
async fn ask(address: SocketAddr) -> io::Result<(bool, Duration)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream.send("?").await?;
    let served = &*stream.recv_exact(1).await? == b"+";
    Ok((served, start.elapsed()))
}

/// Returns how many clients were served, their longest wait, and the longest wait of the refused
/// clients.
async fn overload(most: usize) -> io::Result<(usize, Duration, Duration)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = spawn(serve(listener, most));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(ask(address));
        sleep(PAUSE).await;
    }
    let (mut count, mut served, mut refused) = (0, Duration::ZERO, Duration::ZERO);
    while let Some(answer) = clients.join_next().await {
        let (is_served, took) = answer.expect("the task panicked")?;
        let longest = if is_served { &mut served } else { &mut refused };
        *longest = took.max(*longest);
        count += usize::from(is_served);
    }
    server.abort();
    Ok((count, served, refused))
}

fn overloaded(most: usize) -> (usize, Duration, Duration) {
    run_on(&Sim::builder(1).link(Link::default()).build(), Runtime::builder(), overload(most))
        .expect("the run failed")
}

#[test]
fn an_overloaded_server_with_a_limit_answers_in_time() {
    let (all, longest, _) = overloaded(usize::MAX);
    assert_eq!(all, CLIENTS);
    assert!(longest > 100 * WORK, "{longest:?}: the server is not overloaded");

    let (served, longest, refused) = overloaded(10);
    // A request that is served waits for nine others, plus the network.
    let network = WORK;
    assert!(longest <= 10 * WORK + network, "{longest:?}");
    assert!(refused <= network, "{refused:?}");
    let capacity = (PAUSE * CLIENTS as u32).div_duration_f64(WORK);
    assert!(served as f64 > 0.95 * capacity, "only {served} of {capacity} requests were served");
    assert!(served < CLIENTS);
}
