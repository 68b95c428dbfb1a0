//! One port for several shards, and which shard gets which connection.

use crate::common;
use annulus_skip::skip;

use annulus::net::ListenOptions;
use annulus::shards::{
    Cause, Pinning, Shard, ShardError, ShardListener, ShardedListener, Shards, Spread,
};
use annulus::spawn;
use annulus_kernel::affinity;
use common::{drivers, echo};
use std::future::pending;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, mpsc};
use std::thread;

type Outcome<T> = Result<Vec<T>, ShardError<io::Error>>;

fn bind(count: usize, spread: Spread) -> ShardedListener {
    ShardedListener::bind("127.0.0.1:0", &ListenOptions::new(), count, spread).unwrap()
}

/// A connection and the shard that serves it.
struct Client {
    stream: TcpStream,
    shard: usize,
}

impl Client {
    fn greet(mut stream: TcpStream) -> Self {
        let mut shard = [0];
        stream.read_exact(&mut shard).unwrap();
        Self { stream, shard: shard[0].into() }
    }

    fn connect(address: SocketAddr) -> Self {
        Self::greet(TcpStream::connect(address).unwrap())
    }

    /// Closes the connection, and waits until the server has closed it too.
    fn leave(mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(self.stream.read(&mut [0]).unwrap(), 0);
    }

    fn says(&mut self, text: &[u8]) {
        self.stream.write_all(text).unwrap();
        let mut back = vec![0; text.len()];
        self.stream.read_exact(&mut back).unwrap();
        assert_eq!(back, text);
    }
}

/// Sends each client the index of its shard, and then echoes, until the listener is stopped.
async fn serve(mut listener: ShardListener, shard: Shard) -> io::Result<()> {
    while let Some((mut stream, _)) = listener.accept().await? {
        let name = [shard.index() as u8];
        spawn(async move {
            stream.send(name.to_vec()).await?;
            echo(stream).await
        });
    }
    Ok(())
}

/// Serves connections while `clients` runs on a thread of its own.
fn serving(
    shards: Shards,
    listener: &ShardedListener,
    clients: impl FnOnce(SocketAddr) + Send + 'static,
) {
    let address = listener.local_addr();
    let (sender, handles) = mpsc::channel::<annulus::Handle>();
    let client_thread = thread::spawn(move || {
        let handle = handles.recv().unwrap();
        clients(address);
        handle.stop();
    });
    let outcome = shards.run(async |shard| {
        if shard.index() == 0 {
            sender.send(shard.handles()[0].clone()).unwrap();
        }
        serve(listener.open(&shard)?, shard).await
    });
    client_thread.join().unwrap();
    assert_eq!(io::Error::from(outcome.unwrap_err()).kind(), io::ErrorKind::Interrupted);
}

fn count(clients: &[Client], shards: usize) -> Vec<usize> {
    (0..shards).map(|shard| clients.iter().filter(|client| client.shard == shard).count()).collect()
}

#[test]
fn least_connections_is_even_for_single_connections() {
    for shards in drivers() {
        serving(shards(3), &bind(3, Spread::LeastConnections), |address| {
            let mut clients: Vec<_> = (0..9).map(|_| Client::connect(address)).collect();
            assert_eq!(count(&clients, 3), [3, 3, 3]);
            clients.iter_mut().for_each(|client| client.says(b"hello"));
        });
    }
}

#[test]
fn least_connections_is_even_in_a_burst() {
    for shards in drivers() {
        let listener = bind(3, Spread::LeastConnections);
        let address = listener.local_addr();
        // All clients connect before a shard accepts.
        let early: Vec<_> = (0..30).map(|_| TcpStream::connect(address).unwrap()).collect();
        serving(shards(3), &listener, move |_| {
            let clients: Vec<_> = early.into_iter().map(Client::greet).collect();
            let spread = count(&clients, 3);
            assert!(spread.iter().all(|count| (9..=11).contains(count)), "{spread:?}");
        });
    }
}

#[test]
fn the_shard_with_fewest_connections_gets_the_next() {
    for shards in drivers() {
        serving(shards(2), &bind(2, Spread::LeastConnections), |address| {
            let mut clients: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
            for emptied in [1, 0, 1] {
                let (left, gone): (Vec<_>, _) =
                    clients.into_iter().partition(|client| client.shard != emptied);
                gone.into_iter().for_each(Client::leave);
                clients = left;
                clients.extend((0..4).map(|_| Client::connect(address)));
                assert_eq!(count(&clients, 2), [4, 4]);
            }
        });
    }
}

#[test]
fn the_kernel_spreads_and_every_client_is_served() {
    for spread in [Spread::Hash, Spread::Cpu] {
        for shards in drivers() {
            serving(shards(3).pinning(Pinning::Each), &bind(3, spread), |address| {
                let mut clients: Vec<_> = (0..60).map(|_| Client::connect(address)).collect();
                clients.iter_mut().for_each(|client| client.says(b"hello"));
                let counts = count(&clients, 3);
                assert_eq!(counts.iter().sum::<usize>(), 60, "{counts:?}");
            });
        }
    }
}

/// The kernel prefers the shard on the CPU that receives the connection, which on loopback is the
/// client's CPU.
#[test]
fn connections_follow_their_cpu() {
    let cpus = affinity::allowed().unwrap();
    let [here, there] = cpus[..] else {
        return skip!("{} CPUs, but this needs two", cpus.len());
    };
    for shards in drivers() {
        let shards = shards(2).pinning(Pinning::On(vec![here, there]));
        serving(shards, &bind(2, Spread::Cpu), move |address| {
            for (shard, cpu) in [(1, there), (0, here)] {
                let _pinned = affinity::pin(cpu).unwrap();
                let clients: Vec<_> = (0..20).map(|_| Client::connect(address)).collect();
                let stray = clients.iter().filter(|client| client.shard != shard).count();
                // Older kernels choose by hash, and ksoftirqd may handle a packet on another CPU.
                assert!(stray <= 10, "{stray} of 20 went to the other CPU's shard");
            }
        });
    }
}

#[test]
fn no_other_listener_shares_the_port() {
    let first = bind(2, Spread::Hash);
    let address = first.local_addr();
    for spread in [Spread::Hash, Spread::LeastConnections] {
        let options = ListenOptions::new().reuse_port(true);
        let error = ShardedListener::bind(address, &options, 2, spread).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn a_shard_that_dropped_its_listener_is_skipped() {
    for shards in drivers() {
        let listener = bind(3, Spread::LeastConnections);
        let address = listener.local_addr();
        let (sender, left) = mpsc::channel();
        let left = Mutex::new(left);
        let outcome: Outcome<()> = shards(3).run(async |shard| {
            let listener = listener.open(&shard)?;
            match shard.index() {
                0 => {
                    left.lock().unwrap().recv().unwrap();
                    let served = spawn(serve(listener, shard));
                    spawn_clients(address).await;
                    drop(served);
                    Err(io::Error::other("enough"))
                }
                1 => {
                    drop(listener);
                    sender.send(()).unwrap();
                    pending().await
                }
                _ => serve(listener, shard).await,
            }
        });
        assert_eq!(outcome.unwrap_err().to_string(), "shard 0: enough");
    }
}

/// Connects six clients, none of which may get shard 1.
async fn spawn_clients(address: SocketAddr) {
    let (sender, mut done) = annulus::shards::channel(1);
    let thread = thread::spawn(move || {
        let clients: Vec<_> = (0..6).map(|_| Client::connect(address)).collect();
        sender.try_send(count(&clients, 3)).unwrap();
    });
    assert_eq!(done.recv().await, Some(vec![3, 0, 3]));
    thread.join().unwrap();
}

#[test]
fn accept_returns_none_once_the_accepting_shard_drops_its_listener() {
    for shards in drivers() {
        let listener = bind(2, Spread::LeastConnections);
        let outcome: Outcome<()> = shards(2).run(async |shard| {
            let mut listener = listener.open(&shard)?;
            if shard.index() == 1 {
                assert!(listener.accept().await?.is_none());
                assert!(listener.accept().await?.is_none());
            }
            Ok(())
        });
        outcome.unwrap();
    }
}

#[test]
fn a_listener_is_opened_on_its_number_of_shards_once() {
    let error = |shards: Shards, listener: ShardedListener, times: usize| -> String {
        let outcome: Outcome<()> = shards.run(async |shard| {
            for _ in 0..times {
                listener.open(&shard)?;
            }
            Ok(())
        });
        match outcome.unwrap_err().cause {
            Cause::Main(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let count = error(Shards::new(1), bind(2, Spread::LeastConnections), 1);
    assert_eq!(count, "the listener was created for 2 shards but opened on 1");
    let twice = error(Shards::new(1), bind(1, Spread::Hash), 2);
    assert_eq!(twice, "shard 0 has already opened the listener");
    let unpinned = error(Shards::new(1), bind(1, Spread::Cpu), 1);
    assert!(unpinned.contains("is not pinned to one"), "{unpinned}");
    let none =
        ShardedListener::bind("127.0.0.1:0", &ListenOptions::new(), 0, Spread::Hash).unwrap_err();
    assert!(none.to_string().contains("0 shards"), "{none}");
}

#[test]
fn spread_modes_have_names() {
    for spread in [Spread::LeastConnections, Spread::Hash, Spread::Cpu] {
        assert_eq!(spread.to_string().parse(), Ok(spread));
    }
    let error = "evenly".parse::<Spread>().unwrap_err().to_string();
    assert!(
        error.contains("`evenly`") && error.contains("least-connections, hash, cpu"),
        "{error}"
    );
}
