//! An echo server directly on `annulus-ring`, without the runtime. Each connection has its own
//! buffer and one operation in flight. The mode selects the operations, whether a receive polls
//! first, and whether a kernel thread takes the submissions.

mod connection;
mod mode;

use annulus_kernel::{Address, Domain, Fd, Kernel, Linux, SocketOption, SocketType};
use annulus_ring::op::{AcceptMulti, Close, TimeSpec, Timeout};
use annulus_ring::{Completion, Entry, Ring, SqPoll, Wait};
use connection::{Connection, Next};
use listen::SHORTAGE;
use mode::Mode;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// `user_data` of an accept, of the pause after a failed accept, and of a close. Lower values are
/// connection numbers.
const ACCEPT: u64 = u64::MAX;
const PAUSE: u64 = u64::MAX - 1;
const CLOSE: u64 = u64::MAX - 2;

/// How long the kernel thread polls for submissions before it sleeps.
const POLLER_IDLE: Duration = Duration::from_millis(100);

const PAUSE_TIME: TimeSpec = TimeSpec { seconds: 0, nanoseconds: SHORTAGE.as_nanos() as i64 };

fn main() {
    let (address, word) = listen::tcp_and_mode();
    let mode = listen::must(Mode::of(word.as_deref()));
    let polls = mode.kernel_polls.then_some(SqPoll { idle: POLLER_IDLE, cpu: None });
    let ring = listen::ring(Ring::builder().sq_poll(polls).build().map_err(io::Error::from));
    let (listener, address) = listen::must(bind(address));
    listen::announce(&listen::Address::Tcp(address));
    let mut server = Server { ring, listener, mode, connections: Vec::new(), free: Vec::new() };
    listen::must(server.serve());
}

/// Creates a listening socket, from which accepted sockets inherit TCP_NODELAY.
fn bind(address: SocketAddr) -> io::Result<(Fd, SocketAddr)> {
    let number = Linux.socket(Domain::Inet, SocketType::Stream, false)?;
    // SAFETY: the descriptor has just been opened, and only the end of the process closes it.
    let fd = unsafe { Fd::from_raw(number) };
    Linux.set_option(fd, SocketOption::ReuseAddress, 1)?;
    Linux.set_option(fd, SocketOption::NoDelay, 1)?;
    Linux.bind(fd, &Address::from(address))?;
    Linux.listen(fd, listen::BACKLOG as u32)?;
    Ok((fd, Linux.local_address(fd)?.to_inet()?))
}

struct Server {
    ring: Ring,
    listener: Fd,
    mode: Mode,
    /// Connections by number. They are boxed because the kernel has their addresses.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
}

impl Server {
    fn serve(&mut self) -> io::Result<()> {
        self.accept()?;
        loop {
            self.ring.enter(Wait::For { completions: 1, timeout: None })?;
            loop {
                let next = self.ring.completions().next();
                let Some(completion) = next else { break };
                match completion.user_data {
                    ACCEPT => self.on_accept(completion)?,
                    PAUSE => self.accept()?,
                    CLOSE => {}
                    number => self.on_progress(number as usize, completion.result)?,
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let accept = AcceptMulti { fd: self.listener };
        self.push(accept.entry().user_data(ACCEPT).into())
    }

    /// Handles an accept. If it has failed, for example because no descriptor is free, the next try
    /// follows after a pause.
    fn on_accept(&mut self, completion: Completion) -> io::Result<()> {
        if completion.result >= 0 {
            // SAFETY: the kernel has just opened the descriptor, and only the connection's close
            // operation closes it.
            let fd = unsafe { Fd::from_raw(completion.result) };
            let number = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let connection = self.connections[number].insert(Connection::new(fd));
            let entry = connection.receive(self.mode);
            self.start(number, entry)?;
        }
        match completion.more() {
            true => Ok(()),
            false if completion.result >= 0 => self.accept(),
            false => self.push(Timeout { after: &PAUSE_TIME }.entry().user_data(PAUSE).into()),
        }
    }

    /// Handles the end of a connection's operation.
    fn on_progress(&mut self, number: usize, result: i32) -> io::Result<()> {
        let connection =
            self.connections[number].as_mut().expect("a closed connection has an operation");
        match connection.advance(self.mode, result) {
            Next::Start(entry) => self.start(number, entry),
            Next::End => {
                let close = Close { fd: connection.fd };
                self.connections[number] = None;
                self.free.push(number);
                self.push(close.entry().user_data(CLOSE).into())
            }
        }
    }

    fn start(&mut self, number: usize, entry: Entry) -> io::Result<()> {
        self.push(entry.user_data(number as u64))
    }

    fn push(&mut self, entry: Entry) -> io::Result<()> {
        // SAFETY: the memory that an entry refers to is static, or is in the box of its connection,
        // which has one operation in flight and is dropped only after that has ended.
        while unsafe { self.ring.push_unchecked(entry) }.is_err() {
            self.ring.enter(Wait::No)?;
        }
        Ok(())
    }
}
