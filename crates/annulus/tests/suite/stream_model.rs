//! Random traffic on streams. Each byte is determined by its position, and whatever can make
//! progress does so within seconds, however small the bounds and the budget are.
//! `ANNULUS_STREAM_SEQUENCES` sets the number of connections. A failure prints its seed.

use crate::common::{pair, touch};
use crate::model_helpers::{self, byte, bytes, settings, simulated, small_ring_settings};
use crate::sim::seeds::number;
use annulus::DriverChoice;
use annulus::io::{AsyncRecv, AsyncSend, copy_bidirectional};
use annulus::net::{TcpListener, TcpStream, UnixStream};
use annulus::task::{JoinSet, yield_now};
use annulus::time::sleep;
use fastrand::Rng;
use std::io;
use std::time::Duration;

/// Connections per mode, unless the environment variable sets another number.
const SEQUENCES: u64 = 48;
/// Concurrent connections per runtime.
const TOGETHER: u64 = 6;
/// Concurrent connections that together reach a memory limit.
const CROWD: u64 = 30;

fn seeds(together: u64) -> u64 {
    number("ANNULUS_STREAM_SEQUENCES", SEQUENCES).div_ceil(together)
}

/// Sends `total` bytes in pieces of any size, and then ends the direction.
async fn send(mut to: impl AsyncSend, total: usize, mut rng: Rng) -> io::Result<()> {
    let mut sent = 0;
    while sent < total {
        let most = *rng.choice(&[1, 50, 3000, 40_000, 200_000]).expect("nothing to choose from");
        let len = rng.usize(1..=most).min(total - sent);
        match rng.u8(..12) {
            0 => yield_now().await,
            1 => _ = touch(to.flush()),
            2 => to.flush().await?,
            3 => sleep(Duration::from_millis(rng.u64(..2))).await,
            4 | 5 => {
                to.write_all(&bytes(sent, len)).await?;
                sent += len;
            }
            _ => {
                to.send(bytes(sent, len)).await?;
                sent += len;
            }
        }
    }
    to.shutdown().await
}

/// Receives to the end with every method, and compares the bytes.
async fn receive(mut from: impl AsyncRecv, total: usize, mut rng: Rng) -> io::Result<()> {
    let mut at = 0;
    let check = |at: &mut usize, got: &[u8]| {
        let wrong = got.iter().zip(*at..).find(|(got, at)| **got != byte(*at));
        assert_eq!(wrong, None, "a byte at this offset of {total} is wrong");
        *at += got.len();
    };
    loop {
        let left = total - at;
        let most = *rng.choice(&[1, 50, 3000, 60_000]).expect("nothing to choose from");
        let len = rng.usize(1..=most).min(left);
        match rng.u8(..12) {
            0 => yield_now().await,
            1 => sleep(Duration::from_millis(rng.u64(..2))).await,
            2 => {
                if let Some(Ok(Some(lease))) = touch(from.recv()) {
                    check(&mut at, &lease);
                }
            }
            3 if len > 0 => {
                if let Some(Ok(lease)) = touch(from.recv_exact(len)) {
                    check(&mut at, &lease);
                }
            }
            4 | 5 if len > 0 => check(&mut at, &from.recv_exact(len).await?),
            6 if len > 0 => {
                let seen = from.fill_at_least(len).await?;
                check(&mut at.clone(), seen);
            }
            7 if len > 0 => {
                let mut buf = vec![0; len];
                from.read_exact(&mut buf).await?;
                check(&mut at, &buf);
            }
            8 => {
                let mut buf = vec![0; len.max(1)];
                let count = from.read(&mut buf).await?;
                check(&mut at, &buf[..count]);
                if count == 0 {
                    break;
                }
            }
            _ => match from.recv().await? {
                Some(lease) => check(&mut at, &lease),
                None => break,
            },
        }
    }
    assert_eq!(at, total, "not all bytes were received");
    Ok(())
}

/// Runs both directions on both ends at once. The tasks end once all bytes have arrived.
fn exchange<S: AsyncStreamHalves>(
    tasks: &mut JoinSet<io::Result<()>>,
    ends: [S; 2],
    most: usize,
    rng: &mut Rng,
) {
    let totals = [0, 1].map(|_| {
        let most = (*rng.choice(&[2, 5000, 400_000]).expect("nothing to choose from")).min(most);
        rng.usize(..most)
    });
    let [(one_from, one_to), (other_from, other_to)] = ends.map(S::halves);
    tasks.spawn(send(one_to, totals[0], rng.fork()));
    tasks.spawn(receive(other_from, totals[0], rng.fork()));
    tasks.spawn(send(other_to, totals[1], rng.fork()));
    tasks.spawn(receive(one_from, totals[1], rng.fork()));
}

/// A stream that can be split into its directions.
trait AsyncStreamHalves: Sized {
    fn halves(self) -> (impl AsyncRecv + 'static, impl AsyncSend + 'static);
}

impl AsyncStreamHalves for TcpStream {
    fn halves(self) -> (impl AsyncRecv + 'static, impl AsyncSend + 'static) {
        self.into_split()
    }
}

impl AsyncStreamHalves for UnixStream {
    fn halves(self) -> (impl AsyncRecv + 'static, impl AsyncSend + 'static) {
        self.into_split()
    }
}

/// Returns two ends with a proxy between them.
async fn through_a_proxy(tasks: &mut JoinSet<io::Result<()>>) -> io::Result<[TcpStream; 2]> {
    let ((one, mut near), (mut far, other)) = (pair().await?, pair().await?);
    tasks.spawn(async move { copy_bidirectional(&mut near, &mut far).await.map(drop) });
    Ok([one, other])
}

/// Connects a blocking socket that echoes everything.
fn with_a_std_echo(address: std::net::SocketAddr) -> std::thread::JoinHandle<io::Result<()>> {
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address)?;
        let mut back = stream.try_clone()?;
        io::copy(&mut stream, &mut back)?;
        back.shutdown(std::net::Shutdown::Write)
    })
}

/// Runs this many connections of any kind at once.
async fn traffic(mut rng: Rng, most: usize, together: u64, has_threads: bool) -> io::Result<()> {
    let (mut tasks, mut threads) = (JoinSet::new(), Vec::new());
    for _ in 0..together {
        match rng.u8(..4) {
            0 => {
                let (one, other) = UnixStream::pair()?;
                exchange(&mut tasks, [one, other], most, &mut rng);
            }
            1 => {
                let ends = through_a_proxy(&mut tasks).await?;
                exchange(&mut tasks, ends, most, &mut rng);
            }
            2 if has_threads => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                threads.push(with_a_std_echo(listener.local_addr()?));
                let (from, to) = listener.accept().await?.0.into_split();
                let total = rng.usize(..most);
                tasks.spawn(send(to, total, rng.fork()));
                tasks.spawn(receive(from, total, rng.fork()));
            }
            _ => {
                let (one, other) = pair().await?;
                exchange(&mut tasks, [one, other], most, &mut rng);
            }
        }
    }
    model_helpers::end(tasks, threads).await
}

fn on_driver(driver: DriverChoice) {
    model_helpers::on_driver(driver, seeds(TOGETHER), settings, |rng, most| {
        traffic(rng, most, TOGETHER, true)
    });
}

#[test]
fn all_bytes_arrive_on_uring() {
    on_driver(DriverChoice::Uring);
}

#[test]
fn all_bytes_arrive_on_epoll() {
    on_driver(DriverChoice::Epoll);
}

#[test]
fn all_bytes_arrive_under_simulation() {
    simulated(seeds(TOGETHER), settings, |rng, most| traffic(rng, most, TOGETHER, false));
}

#[test]
fn a_crowd_on_a_small_ring_stays_within_a_memory_limit_on_uring() {
    model_helpers::on_driver(
        DriverChoice::Uring,
        seeds(CROWD),
        small_ring_settings,
        |rng, most| traffic(rng, most, CROWD, true),
    );
}

#[test]
fn a_crowd_on_a_small_ring_stays_within_a_memory_limit_under_simulation() {
    simulated(seeds(CROWD), small_ring_settings, |rng, most| traffic(rng, most, CROWD, false));
}
