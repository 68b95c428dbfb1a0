//! Random datagrams. Each has a number and arrives once, in order and whole. Whatever can make
//! progress does so within seconds, however small the bounds, buffers and budget are.
//! `ANNULUS_DATAGRAM_SEQUENCES` sets the number of conversations. A failure prints its seed.

use crate::common::touch;
use crate::model_helpers::{self, bytes, settings, simulated};
use crate::sim::seeds::number;

use annulus::net::{UdpSocket, UnixDatagram, UnixOptions};
use annulus::task::{JoinSet, yield_now};
use annulus::time::sleep;
use annulus::{DriverChoice, Lease};
use fastrand::Rng;
use std::future::poll_fn;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdUnixDatagram};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Conversations per mode, unless the environment variable sets another number.
const SEQUENCES: u64 = 80;
/// Concurrent conversations per runtime.
const TOGETHER: u64 = 6;
/// UDP datagrams in flight per direction, since those that the receiver has no room for are lost.
const WINDOW: usize = 4;
/// Maximum bytes per datagram. Over UDP, a full window must fit in a socket's buffer.
const MOST_OF_UDP: usize = 20_000;
const MOST_OF_UNIX: usize = 60_000;
/// More than a buffer holds, so that it is received on the heap.
const MOST_ON_HEAP: usize = 120_000;

fn seeds() -> u64 {
    number("ANNULUS_DATAGRAM_SEQUENCES", SEQUENCES) / TOGETHER
}

/// One direction: the length of each datagram, and the limit on datagrams in flight.
#[derive(Clone)]
struct Way {
    lens: Rc<[usize]>,
    window: Option<Rc<Semaphore>>,
}

impl Way {
    fn new(rng: &mut Rng, most: usize, all: usize, window: Option<usize>) -> Self {
        let (mut left, mut lens) = (rng.usize(..all), Vec::new());
        let of_some = *rng.choice(&[1, 50, 3000, most]).expect("nothing to choose from");
        while left > 0 && lens.len() < 60 {
            let most = if rng.bool() { of_some } else { most };
            let len = rng.usize(0..=most.min(left));
            lens.push(len);
            left -= len.max(1);
        }
        let window = window.map(|window| Rc::new(Semaphore::new(window)));
        Self { lens: lens.into(), window }
    }

    fn datagram(&self, number: usize) -> Vec<u8> {
        bytes(number * 7919, self.lens[number])
    }

    /// Waits until another datagram may be in flight.
    async fn enter(&self) {
        if let Some(window) = &self.window {
            window.acquire().await.expect("the semaphore is closed").forget();
        }
    }

    /// Records that a datagram has arrived.
    fn leave(&self) {
        self.window.iter().for_each(|window| window.add_permits(1));
    }
}

/// A connected socket of either kind.
trait Socket {
    fn send(&self, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>>;
    fn recv(&self) -> impl Future<Output = io::Result<Lease>>;
    /// Receives by another method of the socket.
    fn recv_message(&self, polled: bool) -> impl Future<Output = io::Result<Lease>>;
    fn drain(&self) -> impl Future<Output = io::Result<()>>;
}

impl Socket for UnixDatagram {
    fn send(&self, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>> {
        self.send(bytes)
    }

    async fn recv(&self) -> io::Result<Lease> {
        self.recv().await
    }

    async fn recv_message(&self, polled: bool) -> io::Result<Lease> {
        let message = if polled {
            poll_fn(|cx| self.poll_recv_message(cx)).await?
        } else {
            self.recv_message().await?
        };
        assert!(!message.is_truncated());
        Ok(message.bytes)
    }

    async fn drain(&self) -> io::Result<()> {
        self.drain().await
    }
}

impl Socket for UdpSocket {
    fn send(&self, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>> {
        self.send(bytes)
    }

    async fn recv(&self) -> io::Result<Lease> {
        self.recv().await
    }

    async fn recv_message(&self, polled: bool) -> io::Result<Lease> {
        if polled {
            return Ok(poll_fn(|cx| self.poll_recv_from(cx)).await?.0);
        }
        let datagram = self.recv_datagram().await?;
        assert!(!datagram.is_truncated());
        Ok(datagram.bytes)
    }

    async fn drain(&self) -> io::Result<()> {
        self.drain().await
    }
}

/// Sends all datagrams of a direction. Some futures are dropped as soon as they have to wait, and
/// have then sent nothing.
async fn send(socket: Rc<impl Socket>, way: Way, mut rng: Rng) -> io::Result<()> {
    for number in 0..way.lens.len() {
        way.enter().await;
        match rng.u8(..10) {
            0 => yield_now().await,
            1 => sleep(Duration::from_millis(rng.u64(..2))).await,
            2 => socket.drain().await?,
            3 => _ = touch(socket.drain()),
            4 | 5 => {
                if let Some(sent) = touch(socket.send(way.datagram(number))) {
                    sent?;
                    continue;
                }
            }
            _ => {}
        }
        socket.send(way.datagram(number)).await?;
    }
    if rng.bool() { socket.drain().await } else { Ok(()) }
}

/// Receives all datagrams of a direction with every method, and compares them.
async fn receive(socket: Rc<impl Socket>, way: Way, mut rng: Rng) -> io::Result<()> {
    for number in 0..way.lens.len() {
        let lease = loop {
            break match rng.u8(..8) {
                0 => {
                    yield_now().await;
                    continue;
                }
                1 => {
                    sleep(Duration::from_millis(rng.u64(..2))).await;
                    continue;
                }
                2 => match touch(socket.recv()) {
                    Some(lease) => lease,
                    None => continue,
                },
                3 => socket.recv_message(false).await,
                4 => socket.recv_message(true).await,
                _ => socket.recv().await,
            }?;
        };
        assert!(*lease == way.datagram(number)[..], "number {number} of {:?}", way.lens);
        way.leave();
    }
    Ok(())
}

/// Runs both directions on both ends at once.
fn exchange<S: Socket + 'static>(
    tasks: &mut JoinSet<io::Result<()>>,
    ends: [S; 2],
    ways: [Way; 2],
    rng: &mut Rng,
) {
    let [one, other] = ends.map(Rc::new);
    let [there, back] = ways;
    tasks.spawn(send(one.clone(), there.clone(), rng.fork()));
    tasks.spawn(receive(other.clone(), there, rng.fork()));
    tasks.spawn(send(other, back.clone(), rng.fork()));
    tasks.spawn(receive(one, back, rng.fork()));
}

async fn udp_pair() -> io::Result<[UdpSocket; 2]> {
    let [one, other] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    one.connect(other.local_addr()?).await?;
    other.connect(one.local_addr()?).await?;
    Ok([one, other])
}

/// One socket sends to several by name. Each receives its own datagrams, in order.
async fn to_several(
    tasks: &mut JoinSet<io::Result<()>>,
    most: usize,
    rng: &mut Rng,
) -> io::Result<()> {
    let sender = UnixOptions::new().bind_addr(&name()?)?;
    let mut targets = Vec::new();
    for _ in 0..3 {
        let (address, way) = (name()?, Way::new(rng, MOST_OF_UNIX, most, None));
        let target = Rc::new(UnixDatagram::bind_addr(&address)?);
        tasks.spawn(receive(target.clone(), way.clone(), rng.fork()));
        targets.push((address, way, target));
    }
    tasks.spawn(async move {
        let longest = targets.iter().map(|(_, way, _)| way.lens.len()).max().unwrap_or(0);
        for number in 0..longest {
            for (address, way, _) in targets.iter().filter(|(_, way, _)| number < way.lens.len()) {
                sender.send_to_addr(way.datagram(number), address).await?;
            }
        }
        sender.drain().await
    });
    Ok(())
}

/// Returns a name that no other socket has.
fn name() -> io::Result<SocketAddr> {
    // The sequences of one seed run on several drivers at once.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from_abstract_name(format!("annulus-model-{}-{number}", std::process::id()))
}

/// Returns a socket whose peer, on a blocking thread, echoes `count` datagrams.
fn with_a_std_echo(count: usize) -> io::Result<(UnixDatagram, JoinHandle<io::Result<()>>)> {
    let (ours, other) = StdUnixDatagram::pair()?;
    let echo = move || {
        let mut buf = vec![0; MOST_OF_UNIX];
        for _ in 0..count {
            let len = other.recv(&mut buf)?;
            other.send(&buf[..len])?;
        }
        Ok(())
    };
    Ok((UnixDatagram::from_std(ours)?, std::thread::spawn(echo)))
}

/// Runs conversations of any kind at once.
async fn traffic(mut rng: Rng, most: usize, has_threads: bool) -> io::Result<()> {
    let (mut tasks, mut threads) = (JoinSet::new(), Vec::new());
    for _ in 0..TOGETHER {
        match rng.u8(..5) {
            0 => {
                let (one, other) = UnixOptions::new().max_datagram(MOST_ON_HEAP).datagram_pair()?;
                let ways = [0, 1].map(|_| Way::new(&mut rng, MOST_ON_HEAP, most, None));
                exchange(&mut tasks, [one, other], ways, &mut rng);
            }
            1 => {
                let ways = [0, 1].map(|_| Way::new(&mut rng, MOST_OF_UDP, most, Some(WINDOW)));
                exchange(&mut tasks, udp_pair().await?, ways, &mut rng);
            }
            2 => to_several(&mut tasks, most, &mut rng).await?,
            3 if has_threads => {
                let way = Way::new(&mut rng, MOST_OF_UNIX, most, None);
                let (socket, thread) = with_a_std_echo(way.lens.len())?;
                threads.push(thread);
                let socket = Rc::new(socket);
                tasks.spawn(send(socket.clone(), way.clone(), rng.fork()));
                tasks.spawn(receive(socket, way, rng.fork()));
            }
            _ => {
                let (one, other) = UnixDatagram::pair()?;
                let ways = [0, 1].map(|_| Way::new(&mut rng, MOST_OF_UNIX, most, None));
                exchange(&mut tasks, [one, other], ways, &mut rng);
            }
        }
    }
    model_helpers::end(tasks, threads).await
}

fn on_driver(driver: DriverChoice) {
    model_helpers::on_driver(driver, seeds(), settings, |rng, most| traffic(rng, most, true));
}

#[test]
fn all_datagrams_arrive_on_uring() {
    on_driver(DriverChoice::Uring);
}

#[test]
fn all_datagrams_arrive_on_epoll() {
    on_driver(DriverChoice::Epoll);
}

#[test]
fn all_datagrams_arrive_under_simulation() {
    simulated(seeds(), settings, |rng, most| traffic(rng, most, false));
}
