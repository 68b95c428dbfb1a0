//! UDP clients send datagrams to an echo server, over links that lose, duplicate and reorder them.
//! A client may receive any number of datagrams, but only ones that it has sent, unchanged. Between
//! Unix sockets, every datagram arrives once and in order.

use crate::sim::faulty::send_faulty;
use crate::sim::reader::pattern;
use crate::sim::run::{Run, joined};
use annulus::net::{UdpSocket, UnixDatagram};
use annulus::spawn;
use annulus::time::timeout;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Longer than any datagram is in flight.
const QUIET: Duration = Duration::from_secs(5);
/// A datagram's key, number and length, eight bytes each.
const HEAD: usize = 24;
/// Every network's send buffer holds at least this many bytes.
const LONGEST_UNIX: u64 = 1000;

/// The datagrams that one client sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramPlan {
    /// Seed of the payload.
    pub(crate) key: u64,
    pub(crate) count: u64,
    /// Maximum bytes after the head.
    pub(crate) most: u64,
}

/// Echoes everything without copying it.
pub(crate) async fn echo(run: Run, socket: UdpSocket) -> io::Result<()> {
    loop {
        match run.insist(async || socket.recv_from().await).await {
            // The server ignores errors of its sends.
            Ok((datagram, from)) => drop(socket.send_to(datagram, from).await),
            Err(_) => run.pause().await,
        }
    }
}

/// Sends and receives at the same time, until everything has been sent and nothing more arrives.
pub(crate) async fn run_udp_client(
    run: Run,
    plan: DatagramPlan,
    server: SocketAddr,
) -> io::Result<()> {
    let socket = Rc::new(open(&run).await);
    let sent = Rc::new(Cell::new(0));
    let sender = spawn(send_all(run.clone(), socket.clone(), plan, server, sent.clone()));
    loop {
        match timeout(QUIET, socket.recv_from()).await {
            Ok(Ok((datagram, from))) => {
                check(&datagram, from == server, plan, sent.get())?;
                run.count_datagram();
            }
            Ok(Err(_)) => run.pause().await,
            Err(_) if sent.get() == plan.count => break,
            Err(_) => {}
        }
    }
    joined(sender).await?;
    run.latch().count_down();
    Ok(())
}

async fn send_all(
    run: Run,
    socket: Rc<UdpSocket>,
    plan: DatagramPlan,
    server: SocketAddr,
    sent: Rc<Cell<u64>>,
) -> io::Result<()> {
    while sent.get() < plan.count {
        let first = sent.get();
        let count = run.between(1, 4).min(plan.count - first);
        sent.set(first + count);
        if count > 1 {
            let size = HEAD as u64 + run.between(0, plan.most);
            let all = (first..first + count).flat_map(|nth| datagram(plan.key, nth, size));
            _ = socket.send_segments(all.collect::<Vec<_>>(), size as u16, server).await;
        } else if run.below(20) == 0 {
            _ = socket.send_to("", server).await;
        } else if run.below(1000) < run.plan().panics {
            let size = HEAD as u64 + run.between(0, plan.most);
            let bytes = datagram(plan.key, first, size);
            _ = send_faulty(&run, bytes, |bytes| socket.send_to(bytes, server)).await;
        } else {
            let size = HEAD as u64 + run.between(0, plan.most);
            // If the send is dropped before it is ready, nothing is sent, but it still counts as
            // sent.
            _ = run.give_up(socket.send_to(datagram(plan.key, first, size), server)).await;
        }
        run.pause().await;
    }
    _ = socket.drain().await;
    Ok(())
}

/// Returns the nth datagram of a client.
fn datagram(key: u64, nth: u64, size: u64) -> Vec<u8> {
    let head = [key, nth, size].map(u64::to_le_bytes);
    let payload = pattern(key, nth * 1000, size - HEAD as u64);
    [head.as_flattened(), &payload].concat()
}

/// Checks that a datagram is empty, or unchanged and among those sent so far.
fn check(bytes: &[u8], is_expected: bool, plan: DatagramPlan, sent: u64) -> io::Result<()> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let is_known = match (word(0), word(8), word(16)) {
        (Some(key), Some(nth), Some(size)) => {
            key == plan.key
                && nth < sent
                && size == bytes.len() as u64
                && bytes == datagram(key, nth, size)
        }
        _ => bytes.is_empty(),
    };
    if is_known && is_expected {
        return Ok(());
    }
    let (len, key) = (bytes.len(), plan.key);
    Err(io::Error::other(format!("a datagram of {len} bytes that client {key} never sent")))
}

/// Opens a socket as soon as a descriptor is available.
pub(crate) async fn open(run: &Run) -> UdpSocket {
    loop {
        match UdpSocket::bind("127.0.0.1:0") {
            Ok(socket) => {
                _ = socket.set_coalescing(run.below(2) == 0);
                return socket;
            }
            Err(_) => run.pause().await,
        }
    }
}

/// Sends datagrams between Unix sockets. Each arrives once and in order.
pub(crate) async fn run_unix_pair(run: Run, plan: DatagramPlan) -> io::Result<()> {
    let (receiver, sender) = pair(&run).await;
    let sending = run.clone();
    let sends = spawn(async move {
        for nth in 0..plan.count {
            let size = HEAD as u64 + sending.between(0, plan.most.min(LONGEST_UNIX));
            sender.send(datagram(plan.key, nth, size)).await?;
            sending.pause().await;
        }
        sender.drain().await
    });
    for nth in 0..plan.count {
        let got = run.insist(async || receiver.recv().await).await?;
        check(&got, got.get(8..16) == Some(&nth.to_le_bytes()), plan, plan.count)?;
        run.count_datagram();
    }
    joined(sends).await?;
    run.latch().count_down();
    Ok(())
}

/// Opens two connected sockets as soon as descriptors are available.
async fn pair(run: &Run) -> (UnixDatagram, UnixDatagram) {
    loop {
        match UnixDatagram::pair() {
            Ok(pair) => return pair,
            Err(_) => run.pause().await,
        }
    }
}
