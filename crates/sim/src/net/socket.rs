//! A socket: the state that calls and the network change.

use super::datagram_queue::{DatagramPeer, DatagramQueue};
use super::flow::{Flow, StreamEnd};
use super::options::Options;
use super::unix::UnixPart;
use super::unreachable::GiveUp;
use crate::descriptors::Watcher;
use crate::op_id::OpId;
use annulus_kernel::Domain;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;

pub(crate) type SocketId = u32;

/// The waiting operations that an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Receives and accepts.
    Read,
    /// Sends and connects.
    Write,
}

#[derive(Debug)]
pub(crate) enum SocketState {
    Fresh,
    Listening(AcceptQueue),
    Connecting,
    Open,
    /// Reset, refused, or a listener that was shut down.
    Closed,
}

/// Connections that wait to be accepted.
#[derive(Debug)]
pub(crate) struct AcceptQueue {
    pub(crate) backlog: usize,
    pub(crate) queue: VecDeque<SocketId>,
}

/// A socket. It is a TCP socket unless `datagrams` or `unix` is set.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) domain: Domain,
    pub(crate) options: Options,
    /// Whether the descriptor is non-blocking.
    pub(crate) nonblocking: bool,
    pub(crate) datagrams: Option<Box<DatagramQueue>>,
    pub(crate) unix: Option<Box<UnixPart>>,
    pub(crate) state: SocketState,
    pub(crate) local: Option<SocketAddr>,
    /// Whether `bind` chose an address other than the wildcard. Otherwise a TCP socket loses it
    /// with its connection.
    pub(crate) chose_address: bool,
    /// Whether `bind` chose the port. Otherwise a TCP socket loses it with its connection.
    pub(crate) chose_port: bool,
    /// Whether the port in `local` has been freed. Like on Linux, the socket still shows it.
    pub(crate) lost_port: bool,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) peer: Option<SocketId>,
    /// The error that the next call returns, once.
    pub(crate) error: Option<Errno>,
    /// Whether no call has reported the outcome of a TCP connect.
    pub(crate) connect_is_unreported: bool,
    pub(crate) inbound: Flow,
    pub(crate) stopped_sending: bool,
    pub(crate) stopped_receiving: bool,
    /// Whether the host of the socket has crashed, or its kernel has given the connection up.
    pub(crate) vanished: bool,
    /// When the kernel gives the connection up; `None` while the peer can be reached.
    pub(crate) gives_up: Option<GiveUp>,
    /// Whether no file refers to the socket any longer.
    pub(crate) released: bool,
    /// Number of scheduled events and datagrams that refer to the socket.
    pub(crate) events: u32,
    /// Number of attempts to connect that were given up. Their changes are scheduled with a smaller
    /// number, and have no effect.
    pub(crate) given_up: u16,
    readers: Vec<OpId>,
    writers: Vec<OpId>,
    /// The epoll registrations that watch the socket.
    pub(crate) watchers: Vec<Watcher>,
    /// Whether a send or a readiness check found no space, so that the next space is an edge.
    pub(crate) no_space: bool,
}

impl Socket {
    pub(crate) fn new(domain: Domain, options: Options) -> Self {
        Self {
            domain,
            options,
            nonblocking: false,
            datagrams: None,
            unix: (domain == Domain::Unix).then(Box::default),
            state: SocketState::Fresh,
            local: None,
            chose_address: false,
            chose_port: false,
            lost_port: false,
            remote: None,
            peer: None,
            error: None,
            connect_is_unreported: false,
            inbound: Flow::default(),
            stopped_sending: false,
            stopped_receiving: false,
            vanished: false,
            gives_up: None,
            released: false,
            events: 0,
            given_up: 0,
            readers: Vec::new(),
            writers: Vec::new(),
            watchers: Vec::new(),
            no_space: false,
        }
    }

    #[inline]
    pub(crate) fn waiters(&mut self, side: Side) -> &mut Vec<OpId> {
        match side {
            Side::Read => &mut self.readers,
            Side::Write => &mut self.writers,
        }
    }

    /// Returns true for a connected Unix datagram socket.
    pub(crate) fn has_datagram_peer(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|queue| queue.peer != DatagramPeer::None)
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.datagrams.is_some()
    }

    /// Returns true for a datagram socket with nothing to receive.
    pub(crate) fn has_no_datagram(&self) -> bool {
        self.error.is_none() && self.datagrams.as_ref().is_some_and(|queue| queue.is_empty())
    }

    /// Returns how many unread bytes the socket may store. For a Unix socket, only the buffer of
    /// the sender is limited.
    #[inline]
    pub(crate) fn window(&self) -> usize {
        if self.unix.is_some() { usize::MAX } else { self.options.receive_buffer }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, SocketState::Open)
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, SocketState::Closed)
    }

    /// Returns true if there is something to receive or accept, or the end of it.
    #[inline]
    pub(crate) fn readable(&self) -> bool {
        if let Some(queue) = &self.datagrams {
            return !queue.is_empty() || self.stopped_receiving;
        }
        match &self.state {
            SocketState::Listening(listening) => {
                !listening.queue.is_empty() || self.unix.is_some() && self.stopped_receiving
            }
            SocketState::Connecting => false,
            SocketState::Fresh => self.stopped_receiving,
            SocketState::Closed => true,
            SocketState::Open => self.has_more() || self.stopped_receiving,
        }
    }

    /// Returns true if a receive or accept would not wait.
    #[inline]
    pub(crate) fn ends_receive(&self) -> bool {
        self.readable() || self.error.is_some() || self.is_unconnected()
    }

    /// Returns true if more can be read: bytes, or the end of the stream. Always false for a
    /// datagram socket, as on Linux.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.inbound.arrived > 0 || self.inbound.end == StreamEnd::Arrived
    }

    /// Returns the number of bytes that can be received: zero at the end of the stream, or the
    /// error.
    #[inline]
    pub(crate) fn receivable(&mut self) -> Result<usize, Errno> {
        if self.inbound.arrived > 0 {
            return Ok(self.inbound.arrived);
        }
        // Like on Linux, a Unix socket returns its error before the end of the stream.
        if self.inbound.end == StreamEnd::Arrived && self.unix.is_none() {
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.inbound.end == StreamEnd::Arrived {
            return Ok(0);
        }
        match self.state {
            SocketState::Fresh | SocketState::Listening(_) if self.unix.is_some() => {
                Err(Errno::INVAL)
            }
            SocketState::Fresh if self.stopped_receiving => Ok(0),
            SocketState::Fresh | SocketState::Listening(_) => Err(Errno::NOTCONN),
            SocketState::Open if !self.stopped_receiving => Err(Errno::AGAIN),
            SocketState::Connecting => Err(Errno::AGAIN),
            SocketState::Open | SocketState::Closed => Ok(0),
        }
    }

    /// Takes the error that a send reports, if any. A send checks for errors before it checks for
    /// space.
    #[inline]
    pub(crate) fn take_send_error(&mut self) -> Option<Errno> {
        if let Some(error) = self.error.take() {
            return Some(error);
        }
        match self.state {
            SocketState::Open if !self.stopped_sending => None,
            SocketState::Connecting => Some(Errno::AGAIN),
            SocketState::Fresh | SocketState::Listening(_) if self.unix.is_some() => {
                Some(Errno::NOTCONN)
            }
            _ => Some(Errno::PIPE),
        }
    }
}
