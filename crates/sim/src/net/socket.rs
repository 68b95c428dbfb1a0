//! A socket: what the calls and the network change.

use super::flow::{End, Flow};
use super::mailbox::{Mailbox, Partner};
use super::options::Options;
use super::unix::UnixPart;
use crate::op::OpId;
use annulus_kernel::Domain;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A socket's number.
pub(crate) type SocketId = u32;

/// Which waiters an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Receives and accepts.
    Read,
    /// Sends and connects.
    Write,
}

/// Where a socket is in its life.
#[derive(Debug)]
pub(crate) enum State {
    Fresh,
    Listening(Listening),
    Connecting,
    Open,
    /// Reset, or a listener that was shut down: beyond use.
    Closed,
}

/// Connections that wait to be accepted.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) backlog: usize,
    pub(crate) queue: VecDeque<SocketId>,
}

/// A socket: a TCP connection's end, unless `mail` or `unix` say otherwise.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) domain: Domain,
    pub(crate) options: Options,
    /// Its descriptor was opened as a non-blocking one.
    pub(crate) nonblocking: bool,
    /// What a datagram socket has.
    pub(crate) mail: Option<Box<Mailbox>>,
    /// What a Unix socket has.
    pub(crate) unix: Option<Box<UnixPart>>,
    pub(crate) state: State,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) peer: Option<SocketId>,
    /// What the next call answers, once.
    pub(crate) error: Option<Errno>,
    pub(crate) inbound: Flow,
    pub(crate) stopped_sending: bool,
    pub(crate) stopped_receiving: bool,
    /// No file stands for it any more.
    pub(crate) released: bool,
    /// Scheduled events that name it.
    pub(crate) events: u32,
    readers: Vec<OpId>,
    writers: Vec<OpId>,
}

impl Socket {
    pub(crate) fn new(domain: Domain, options: Options) -> Self {
        Self {
            domain,
            options,
            nonblocking: false,
            mail: None,
            unix: (domain == Domain::Unix).then(Box::default),
            state: State::Fresh,
            local: None,
            remote: None,
            peer: None,
            error: None,
            inbound: Flow::default(),
            stopped_sending: false,
            stopped_receiving: false,
            released: false,
            events: 0,
            readers: Vec::new(),
            writers: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn waiters(&mut self, side: Side) -> &mut Vec<OpId> {
        match side {
            Side::Read => &mut self.readers,
            Side::Write => &mut self.writers,
        }
    }

    /// Whether it is a Unix datagram socket that is connected.
    pub(crate) fn has_partner(&self) -> bool {
        self.mail.as_ref().is_some_and(|mail| mail.partner != Partner::None)
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.mail.is_some()
    }

    /// How much it may have received and not read: within the host, the sender's buffer is the limit.
    #[inline]
    pub(crate) fn window(&self) -> usize {
        if self.unix.is_some() { usize::MAX } else { self.options.receive_buffer }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether a receive or accept would not have to wait.
    #[inline]
    pub(crate) fn readable(&self) -> bool {
        if let Some(mail) = &self.mail {
            return !mail.is_empty() || self.error.is_some() || self.stopped_receiving;
        }
        match &self.state {
            State::Listening(listening) => !listening.queue.is_empty(),
            State::Connecting => false,
            State::Fresh | State::Closed => true,
            State::Open => self.has_more() || self.error.is_some() || self.stopped_receiving,
        }
    }

    /// Whether there is more to read: bytes, or the end of the stream.
    ///
    /// Of a datagram socket nobody says so: as on Linux, one looks again.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.inbound.arrived > 0 || self.inbound.end == End::Arrived
    }

    /// What a receive finds: how many bytes, zero at the end, or why not.
    #[inline]
    pub(crate) fn look(&mut self) -> Result<usize, Errno> {
        if self.inbound.arrived > 0 {
            return Ok(self.inbound.arrived);
        }
        if self.inbound.end == End::Arrived {
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.state {
            State::Fresh | State::Listening(_) => Err(Errno::NOTCONN),
            State::Open if !self.stopped_receiving => Err(Errno::AGAIN),
            State::Connecting => Err(Errno::AGAIN),
            State::Open | State::Closed => Ok(0),
        }
    }

    /// Why nothing can be sent now, if that is so: to be asked before the room is looked at.
    #[inline]
    pub(crate) fn refuses_to_send(&mut self) -> Option<Errno> {
        if let Some(error) = self.error.take() {
            return Some(error);
        }
        match self.state {
            State::Open if !self.stopped_sending => None,
            State::Connecting => Some(Errno::AGAIN),
            _ => Some(Errno::PIPE),
        }
    }
}
