//! A fixture for one driver: it submits operations, takes turns, and sorts events by token.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each test file uses only some of it")]

use annulus_driver::{
    Driver, Epoll, Event, FileStart, MemoryOp, Op, OpKind, PoolSize, ReceiveArea, Token, Uring,
    UringConfig, Wait,
};
use annulus_kernel::file::FileCall;
use annulus_kernel::process::has_capability;
use annulus_kernel::{Fd, Kernel, Linux};
use annulus_ring::{Entry, Features};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::thread::CapabilitySet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{IntoRawFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Time after which a missing event fails the test.
const MAX_EVENT_WAIT: Duration = Duration::from_secs(20);

/// The size of the pool, small enough for a test to exhaust it.
pub(crate) const POOL_SIZE: PoolSize = PoolSize { buffer: 4096, count: 4 };

/// Runs `body` on every driver that the system supports.
pub(crate) fn on_each_driver(body: impl Fn(&mut Rig)) {
    body(&mut Rig::epoll());
    if let Some(mut rig) = Rig::uring(false) {
        body(&mut rig);
    }
}

/// A driver under test.
pub(crate) struct Rig {
    pub(crate) driver: Driver,
    slots: u32,
    /// Events that arrived while the test waited for an event with another token.
    early: Vec<Event>,
}

impl Rig {
    pub(crate) fn epoll() -> Self {
        let epoll = Epoll::new(Rc::new(Linux), POOL_SIZE).expect("epoll does not work");
        Self::of(Driver::Epoll(Box::new(epoll)))
    }

    /// Returns `None` if io_uring is blocked. A restricted ring accepts only the operations of the
    /// runtime.
    pub(crate) fn uring(restricted: bool) -> Option<Self> {
        let config = UringConfig { pool: POOL_SIZE, restricted, ..UringConfig::default() };
        Uring::new(config).ok().map(|uring| Self::of(Driver::Uring(Box::new(uring))))
    }

    /// Creates a rig whose streams receive into an area of `pages` pages that the kernel fills.
    /// Returns `None` if this kernel has no such receives, or does not allow them.
    pub(crate) fn receiving_zero_copy(pages: usize) -> Option<Self> {
        let bytes = pages * rustix::param::page_size();
        let receive_area = Some(ReceiveArea { bytes, queue: None });
        let config = UringConfig { pool: POOL_SIZE, receive_area, ..UringConfig::default() };
        let has_it = Features::detect().is_ok_and(|features| features.has("deviceless receive"));
        if !has_it || !has_capability(CapabilitySet::NET_ADMIN) {
            return None;
        }
        Some(Self::of(Driver::Uring(Box::new(Uring::new(config).unwrap()))))
    }

    fn of(driver: Driver) -> Self {
        Self { driver, slots: 0, early: Vec::new() }
    }

    /// Starts an operation with a new token.
    pub(crate) fn start(&mut self, kind: OpKind, op: Op) -> Token {
        let token = self.token(kind);
        self.driver.submit(token, op);
        token
    }

    /// Starts an operation that refers to memory, with a new token.
    pub(crate) fn start_memory(&mut self, kind: OpKind, op: MemoryOp) -> Token {
        let token = self.token(kind);
        // SAFETY: each test keeps the memory that its operations refer to until their terminal
        // events, and closes its descriptors only afterwards.
        unsafe { self.driver.submit_memory(token, op) };
        token
    }

    /// Starts a file call with a new token; no other file call is in flight.
    pub(crate) fn start_file(&mut self, call: FileCall, start: FileStart) -> Token {
        self.start_file_beside(call, start, 1)
    }

    /// Starts a file call with a new token; `in_flight` file calls are in flight, including this
    /// one.
    pub(crate) fn start_file_beside(
        &mut self,
        call: FileCall,
        start: FileStart,
        in_flight: u32,
    ) -> Token {
        let token = self.token(OpKind::File);
        // SAFETY: each test keeps the memory and the descriptors of its calls until their terminal
        // events.
        unsafe { self.driver.submit_file(token, call, start, in_flight) };
        token
    }

    /// Submits an entry that the driver would not submit itself, and returns its result.
    pub(crate) fn answer(&mut self, entry: Entry) -> Result<u32, Errno> {
        let token = self.token(OpKind::Custom);
        // SAFETY: the entries of the tests refer to static memory, or to none.
        unsafe { self.driver.submit_custom(token, entry) };
        self.event(token).result
    }

    fn token(&mut self, kind: OpKind) -> Token {
        self.slots += 1;
        Token::new(kind, 7, self.slots)
    }

    pub(crate) fn cancel(&mut self, target: Token) {
        self.driver.submit(Token::IGNORED, Op::Cancel { target });
    }

    pub(crate) fn close(&mut self, fd: Fd) {
        self.driver.submit(Token::IGNORED, Op::Close { fd });
    }

    /// Takes one turn, and returns all its events.
    pub(crate) fn turn(&mut self, wait: Wait) -> Vec<Event> {
        self.driver.refill();
        self.driver.turn(wait).expect("a turn failed");
        let mut events = std::mem::take(&mut self.early);
        events.extend(std::iter::from_fn(|| self.driver.next_event()));
        events
    }

    /// Waits for the next event of an operation.
    pub(crate) fn event(&mut self, token: Token) -> Event {
        let deadline = now() + MAX_EVENT_WAIT;
        let mut wait = Wait::No;
        loop {
            self.early = self.turn(wait);
            if let Some(at) = self.early.iter().position(|event| event.token == token) {
                return self.early.remove(at);
            }
            let left = deadline.saturating_sub(now());
            assert!(!left.is_zero(), "{token:?} had no event in time");
            wait = Wait::UpTo(Some(left));
        }
    }

    /// Takes a few turns, and fails if there is an event.
    pub(crate) fn expect_silence(&mut self) {
        for _ in 0..3 {
            let events = self.turn(Wait::No);
            assert!(events.is_empty(), "unexpected {events:?}");
        }
        assert!(self.driver.sends_assumed_complete());
    }

    /// Returns the bytes of a lent buffer, and gives the buffer back.
    pub(crate) fn take(&mut self, event: Event) -> Vec<u8> {
        let id = event.buffer.expect("a receive into the pool has no buffer");
        let bytes = self.peek(event);
        self.driver.pool().give_back(id);
        bytes
    }

    /// Returns the bytes of a lent buffer.
    pub(crate) fn peek(&self, event: Event) -> Vec<u8> {
        let id = event.buffer.expect("a receive into the pool has no buffer");
        let len = event.result.expect("a filled buffer has no length") as usize;
        // SAFETY: the buffer is lent to this test, and the driver has filled `len` bytes of it.
        unsafe { std::slice::from_raw_parts(self.driver.pool().address(id), len).to_vec() }
    }

    /// Receives into the pool until `len` bytes have arrived, and starts receives as often as
    /// necessary.
    pub(crate) fn receive(&mut self, fd: Fd, len: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < len {
            let token = self.start(OpKind::Recv, Op::RecvPooled { fd });
            let event = self.event(token);
            got.extend(self.take(event));
        }
        got
    }
}

/// Wraps a descriptor that a test has opened, or received from an event.
pub(crate) fn owned(number: RawFd) -> Fd {
    // SAFETY: the test owns the descriptor, and closes it once, after its last operation.
    unsafe { Fd::from_raw(number) }
}

/// Returns a loopback address that no other test uses, with port 0. A port that was bound at this
/// address therefore stays free after its close.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT_NUMBER: AtomicU8 = AtomicU8::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    ([127, 64 + number % 128, high, low], 0).into()
}

/// Creates a connection with small buffers: a descriptor for the driver, and a blocking socket as
/// the peer.
pub(crate) fn pair() -> (Fd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    peer.set_nodelay(true).unwrap();
    sockopt::set_socket_send_buffer_size(&ours, 64 * 1024).unwrap();
    sockopt::set_socket_recv_buffer_size(&peer, 64 * 1024).unwrap();
    (owned(ours.into_raw_fd()), peer)
}

/// Sends through the driver until the socket is full, and returns the number of bytes sent.
pub(crate) fn fill(rig: &mut Rig, fd: Fd, bytes: &[u8]) -> usize {
    let mut sent = 0;
    loop {
        let rest = &bytes[sent..];
        assert!(!rest.is_empty(), "a socket accepted {sent} bytes although the peer read none");
        let len = rest.len().min(1 << 20);
        let op = MemoryOp::SendNow { fd, buffer: rest.as_ptr(), len: len as u32 };
        let token = rig.start_memory(OpKind::Send, op);
        match rig.turn(Wait::No).as_slice() {
            [] => sent += len,
            [event] => {
                assert_eq!((event.token, event.more), (token, false));
                match event.result {
                    Ok(count) => sent += count as usize,
                    Err(errno) => {
                        assert_eq!(errno, Errno::AGAIN);
                        return sent;
                    }
                }
            }
            more => panic!("one send has several events: {more:?}"),
        }
    }
}

/// Reads exactly `len` bytes on another thread.
pub(crate) fn read_later(mut peer: TcpStream, len: usize) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut got = vec![0; len];
        peer.read_exact(&mut got).unwrap();
        got
    })
}

/// Returns bytes in which a shift, a swap or a loss can be detected.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8 ^ (i >> 12) as u8).collect()
}

/// Returns the monotonic time.
pub(crate) fn now() -> Duration {
    Linux.now()
}

pub(crate) fn write(peer: &mut TcpStream, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
}
