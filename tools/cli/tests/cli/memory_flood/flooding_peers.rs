//! Peers that send as much as they can and never read.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to check whether to stop.
const POLL_INTERVAL: rustix::time::Timespec =
    rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The peers, all on one thread.
pub(crate) struct FloodingPeers {
    thread: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

impl FloodingPeers {
    /// Connects `count` peers, each with socket buffers of `buffer` bytes, or with the default
    /// buffers.
    pub(crate) fn connect_all(
        address: SocketAddr,
        count: usize,
        buffer: Option<usize>,
    ) -> FloodingPeers {
        let (stopping, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let peers: Vec<_> = (0..count).map(|_| connect(address, buffer)).collect();
        let (stop_flag, sent_count) = (stopping.clone(), sent.clone());
        let thread = std::thread::spawn(move || flood(peers, &stop_flag, &sent_count));
        FloodingPeers { thread: Some(thread), stopping, sent }
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for FloodingPeers {
    /// Closes all connections, which resets them.
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))), "the thread of the flooding peers panicked");
    }
}

/// Connects a peer with buffers of `buffer` bytes. With default buffers, which grow, many peers can
/// use up the machine's memory for TCP; then the kernel resets connections.
fn connect(address: SocketAddr, buffer: Option<usize>) -> TcpStream {
    // CLOEXEC: servers that other tests start must not inherit the socket.
    let (family, kind, flags) = (AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket =
        rustix::net::socket_with(family, kind, flags, None).expect("cannot create a socket");
    if let Some(bytes) = buffer {
        sockopt::set_socket_send_buffer_size(&socket, bytes).expect("cannot set the send buffer");
        sockopt::set_socket_recv_buffer_size(&socket, bytes)
            .expect("cannot set the receive buffer");
    }
    rustix::net::connect(&socket, &address).expect("cannot connect to the server");
    let peer = TcpStream::from(socket);
    peer.set_nonblocking(true).expect("cannot make the socket non-blocking");
    sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("cannot set SO_LINGER");
    peer
}

fn flood(mut peers: Vec<TcpStream>, stopping: &AtomicBool, sent: &AtomicU64) {
    let epoll: OwnedFd =
        epoll::create(CreateFlags::CLOEXEC).expect("cannot create an epoll instance");
    for (index, peer) in peers.iter().enumerate() {
        let data = EventData::new_u64(index as u64);
        epoll::add(&epoll, peer, data, EventFlags::OUT).expect("cannot watch a socket");
    }
    let text = vec![b'x'; 64 * 1024];
    while !stopping.load(Ordering::Relaxed) {
        let mut room = [MaybeUninit::uninit(); 64];
        let Ok((events, _)) = epoll::wait(&epoll, &mut room, Some(&POLL_INTERVAL)) else {
            continue;
        };
        for event in events.iter() {
            let peer = &mut peers[event.data.u64() as usize];
            match peer.write(&text) {
                Ok(count) => _ = sent.fetch_add(count as u64, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("the server ended a connection: {error}"),
            }
        }
    }
}
