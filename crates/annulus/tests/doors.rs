//! One port for several shards: who gets which connection.

mod common;

use annulus::net::ListenOptions;
use annulus::shards::{Cause, Doors, Incoming, Pinning, Shard, ShardError, Shards, Spread};
use annulus::{affinity, spawn};
use common::{drivers, echo};
use std::future::pending;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, mpsc};
use std::thread;

type Outcome<T> = Result<Vec<T>, ShardError<io::Error>>;

fn doors(count: usize, spread: Spread) -> Doors {
    Doors::bind("127.0.0.1:0", &ListenOptions::new(), count, spread).unwrap()
}

/// A connection, and the shard that serves it.
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

    /// Closes, and waits until the server has closed too.
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

/// Tells each client which shard it is, and echoes; until it is stopped.
async fn serve(mut incoming: Incoming, shard: Shard) -> io::Result<()> {
    while let Some((mut stream, _)) = incoming.accept().await? {
        let name = [shard.index() as u8];
        spawn(async move {
            stream.send(name.to_vec()).await?;
            echo(stream).await
        });
    }
    Ok(())
}

/// Serves while `visit` runs on a thread of its own.
fn visited(shards: Shards, doors: &Doors, visit: impl FnOnce(SocketAddr) + Send + 'static) {
    let address = doors.local_addr();
    let (sender, handles) = mpsc::channel::<annulus::Handle>();
    let visitor = thread::spawn(move || {
        let handle = handles.recv().unwrap();
        visit(address);
        handle.stop();
    });
    let outcome = shards.run(async |shard| {
        if shard.index() == 0 {
            sender.send(shard.handles()[0].clone()).unwrap();
        }
        serve(doors.open(&shard)?, shard).await
    });
    visitor.join().unwrap();
    assert_eq!(io::Error::from(outcome.unwrap_err()).kind(), io::ErrorKind::Interrupted);
}

fn count(clients: &[Client], shards: usize) -> Vec<usize> {
    (0..shards).map(|shard| clients.iter().filter(|client| client.shard == shard).count()).collect()
}

#[test]
fn fewest_is_even_one_by_one() {
    for shards in drivers() {
        visited(shards(3), &doors(3, Spread::Fewest), |address| {
            let mut clients: Vec<_> = (0..9).map(|_| Client::connect(address)).collect();
            assert_eq!(count(&clients, 3), [3, 3, 3]);
            clients.iter_mut().for_each(|client| client.says(b"hello"));
        });
    }
}

#[test]
fn fewest_is_even_in_a_burst() {
    for shards in drivers() {
        let doors = doors(3, Spread::Fewest);
        let address = doors.local_addr();
        // They are all there before anybody accepts.
        let early: Vec<_> = (0..30).map(|_| TcpStream::connect(address).unwrap()).collect();
        visited(shards(3), &doors, move |_| {
            let clients: Vec<_> = early.into_iter().map(Client::greet).collect();
            let spread = count(&clients, 3);
            assert!(spread.iter().all(|count| (9..=11).contains(count)), "{spread:?}");
        });
    }
}

#[test]
fn who_has_become_the_emptiest_gets_the_next() {
    for shards in drivers() {
        visited(shards(2), &doors(2, Spread::Fewest), |address| {
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
fn the_kernel_spreads_and_everybody_is_served() {
    for spread in [Spread::Hash, Spread::Cpu] {
        for shards in drivers() {
            visited(shards(3), &doors(3, spread), |address| {
                let mut clients: Vec<_> = (0..60).map(|_| Client::connect(address)).collect();
                clients.iter_mut().for_each(|client| client.says(b"hello"));
                let counts = count(&clients, 3);
                assert_eq!(counts.iter().sum::<usize>(), 60, "{counts:?}");
            });
        }
    }
}

/// The kernel prefers the shard on the CPU that receives; on loopback that is the client's.
#[test]
fn connections_follow_their_cpu() {
    let cpus = affinity::allowed().unwrap();
    let [here, there] = cpus[..] else {
        return eprintln!("skipped: {} CPUs, and this wants two", cpus.len());
    };
    for shards in drivers() {
        let shards = shards(2).pinning(Pinning::On(vec![here, there]));
        visited(shards, &doors(2, Spread::Cpu), move |address| {
            for (shard, cpu) in [(1, there), (0, here)] {
                let _pinned = affinity::pin(cpu).unwrap();
                let clients: Vec<_> = (0..20).map(|_| Client::connect(address)).collect();
                let stray = clients.iter().filter(|client| client.shard != shard).count();
                // Older kernels draw, and ksoftirqd may handle a packet elsewhere.
                assert!(stray <= 10, "{stray} of 20 went to the other CPU's shard");
            }
        });
    }
}

#[test]
fn nobody_else_shares_the_port() {
    let first = doors(2, Spread::Hash);
    let address = first.local_addr();
    for spread in [Spread::Hash, Spread::Fewest] {
        let options = ListenOptions::new().reuse_port(true);
        let error = Doors::bind(address, &options, 2, spread).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn a_shard_that_left_is_passed_over() {
    for shards in drivers() {
        let doors = doors(3, Spread::Fewest);
        let address = doors.local_addr();
        let (sender, left) = mpsc::channel();
        let left = Mutex::new(left);
        let outcome: Outcome<()> = shards(3).run(async |shard| {
            let incoming = doors.open(&shard)?;
            match shard.index() {
                0 => {
                    left.lock().unwrap().recv().unwrap();
                    let served = spawn(serve(incoming, shard));
                    spawn_clients(address).await;
                    drop(served);
                    Err(io::Error::other("enough"))
                }
                1 => {
                    drop(incoming);
                    sender.send(()).unwrap();
                    pending().await
                }
                _ => serve(incoming, shard).await,
            }
        });
        assert_eq!(outcome.unwrap_err().to_string(), "shard 0: enough");
    }
}

/// Six clients, of which none may meet shard 1.
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
fn when_the_acceptor_leaves_the_others_learn_of_it() {
    for shards in drivers() {
        let doors = doors(2, Spread::Fewest);
        let outcome: Outcome<()> = shards(2).run(async |shard| {
            let mut incoming = doors.open(&shard)?;
            if shard.index() == 1 {
                assert!(incoming.accept().await?.is_none());
                assert!(incoming.accept().await?.is_none());
            }
            Ok(())
        });
        outcome.unwrap();
    }
}

#[test]
fn doors_are_opened_as_they_were_made() {
    let told = |shards: Shards, doors: Doors, times: usize| -> String {
        let outcome: Outcome<()> = shards.run(async |shard| {
            for _ in 0..times {
                doors.open(&shard)?;
            }
            Ok(())
        });
        match outcome.unwrap_err().cause {
            Cause::Main(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let count = told(Shards::new(1), doors(2, Spread::Fewest), 1);
    assert_eq!(count, "doors for 2 shards, and there are 1");
    let twice = told(Shards::new(1), doors(1, Spread::Hash), 2);
    assert_eq!(twice, "shard 0 has opened its door already");
    let free = told(Shards::new(1).pinning(Pinning::Free), doors(1, Spread::Cpu), 1);
    assert!(free.contains("pinned to none"), "{free}");
    let none = Doors::bind("127.0.0.1:0", &ListenOptions::new(), 0, Spread::Hash).unwrap_err();
    assert!(none.to_string().contains("0 shards"), "{none}");
}

#[test]
fn ways_to_spread_have_names() {
    for spread in [Spread::Fewest, Spread::Hash, Spread::Cpu] {
        assert_eq!(spread.to_string().parse(), Ok(spread));
    }
    let error = "evenly".parse::<Spread>().unwrap_err().to_string();
    assert!(error.contains("`evenly`") && error.contains("fewest, hash, cpu"), "{error}");
}
