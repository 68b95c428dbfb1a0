//! UDP and Unix datagram sockets. Each has one slot, with its receive and its sends. The policy is
//! the same for all drivers.
//!
//! The life of a slot:
//!
//! 1. *Open*: a handle owns it. `recv` arms its receive and queues received datagrams in the slot
//!    until a task takes them. `outgoing` queues datagrams to send, and `send` starts them at the
//!    end of the turn.
//! 2. *Dropped*: the handle is gone. The receive is cancelled and received datagrams are dropped.
//!    Queued datagrams are still sent until the linger time expires.
//! 3. *Closed*: nothing of the slot is in flight. The descriptor is closed and the slot is free.
//!
//! A slot is freed only when it is closed, so the token of an operation in flight always finds its
//! own slot.

mod errors;
mod format;
mod outgoing;
mod received;
mod recv;
mod send;

pub(crate) use format::{MessageFormat, PeerAddress, RecvMsgBuf};
pub(crate) use outgoing::SendMeta;
pub(crate) use received::ReceivedMessage;

use crate::slots::Waits;
use crate::slots::loop_state::LoopState;
use crate::slots::turn_lists::TurnLists;
use crate::timers::TimerAction;
use annulus_driver::{Pool, PoolSize, Slab, SlotId};
use annulus_kernel::{Address, Domain, Fd};
use outgoing::OutgoingDatagram;
use recv::RecvState;
use send::SendState;
use std::io;
use std::rc::Rc;

pub(crate) struct DatagramSocket {
    id: SlotId,
    pub(crate) fd: Fd,
    /// The layout of received datagrams.
    format: &'static MessageFormat,
    rx: RecvState,
    tx: SendState,
    /// Whether the handle has been dropped.
    dropped: bool,
}

impl DatagramSocket {
    fn new(id: SlotId, fd: Fd, format: &'static MessageFormat, settings: DatagramSettings) -> Self {
        Self {
            id,
            fd,
            format,
            rx: RecvState::new(settings.max_datagram),
            tx: SendState::new(settings.unordered),
            dropped: false,
        }
    }

    /// Marks the socket as connected. The kernel may then return an error of an earlier datagram
    /// from a later send.
    pub(crate) fn set_connected(&mut self) {
        self.tx.connected = true;
    }

    /// Connects the socket. Datagrams that are still queued for its former peer are sent there, and
    /// a later call with the address of that peer returns their errors.
    ///
    /// # Errors
    /// The errors of connect(2). Then the peer is unchanged.
    pub(crate) fn connect(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        peer: &Address,
    ) -> io::Result<()> {
        self.start_in_flight(state);
        let kernel = state.driver.kernel();
        let former = self.tx.connected.then(|| kernel.peer_address(self.fd));
        kernel.connect(self.fd, peer)?;
        self.set_connected();
        if let Some(Ok(former)) = former {
            self.address_to(shared, former.into());
        }
        Ok(())
    }

    /// Starts the timer that limits how long a dropped socket may send its queued datagrams.
    fn start_linger(&mut self, state: &mut LoopState) {
        state.start_linger(&mut self.tx.linger, TimerAction::DatagramLinger(self.id));
    }

    /// Returns true if the socket was dropped and nothing is in flight, so that
    /// [`Datagrams::close`] is due.
    #[inline]
    fn is_done(&self) -> bool {
        self.dropped && self.rx.is_idle() && self.tx.is_quiet()
    }
}

/// Maximum `max_datagram` of a UDP socket, in bytes: the limit of the length field.
const MAX_INET_BYTES: usize = 65_535;
/// Maximum `max_datagram` of a Unix socket, in bytes. The kernel allows datagrams as large as the
/// sender's buffer. This constant limits the memory that one receive may take.
const MAX_UNIX_BYTES: usize = 64 << 20;

/// Settings that are chosen when a socket is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DatagramSettings {
    /// Whether sends may overtake one another.
    pub(crate) unordered: bool,
    /// Size of the largest datagram that is received whole, in bytes. `None` means what fits into a
    /// pool buffer.
    pub(crate) max_datagram: Option<usize>,
}

impl DatagramSettings {
    /// Checks these settings for a socket of this domain.
    ///
    /// # Errors
    /// `InvalidInput` if `max_datagram` is above the limit of the domain.
    pub(crate) fn check(&self, domain: Domain) -> io::Result<()> {
        let most = if domain == Domain::Unix { MAX_UNIX_BYTES } else { MAX_INET_BYTES };
        match self.max_datagram.filter(|wanted| *wanted > most) {
            Some(wanted) => {
                let text = format!(
                    "max_datagram of {wanted} bytes is above the limit of {most}; use less"
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            None => Ok(()),
        }
    }
}

pub(crate) struct Datagrams {
    slots: Slab<DatagramSocket>,
    shared: DatagramResources,
    /// The size of the receive pool, which is created with the first socket.
    pool_size: PoolSize,
}

/// State that all datagram sockets share.
#[derive(Default)]
pub(crate) struct DatagramResources {
    /// The receive buffers, which are created with the first socket.
    pool: Option<Rc<Pool>>,
    /// Whether the driver can send bytes to an address without a message header.
    supports_send_to_now: bool,
    outgoing: Slab<OutgoingDatagram>,
    turn_lists: TurnLists,
}

impl Datagrams {
    pub(crate) fn new(pool_size: PoolSize) -> Self {
        Self { slots: Slab::new(), shared: DatagramResources::default(), pool_size }
    }

    /// Adds a socket. The first socket creates the pool that all sockets receive into.
    ///
    /// # Errors
    /// There is no memory for the pool, or the driver cannot receive datagrams. The caller then
    /// keeps the descriptor.
    pub(crate) fn add(
        &mut self,
        state: &mut LoopState,
        fd: Fd,
        format: &'static MessageFormat,
        settings: DatagramSettings,
    ) -> io::Result<u32> {
        state.driver.open_datagram_pool(self.pool_size)?;
        self.shared.pool = state.driver.datagram_pool().cloned();
        self.shared.supports_send_to_now = state.driver.supports_send_to_now();
        Ok(self.slots.insert_with(|id| DatagramSocket::new(id, fd, format, settings)))
    }

    /// Handles a dropped handle. Queued datagrams are still sent until the linger time expires.
    pub(crate) fn drop_socket(&mut self, state: &mut LoopState, slot: u32) {
        let socket = self.slots.get(slot);
        socket.dropped = true;
        socket.stop_recv(state);
        socket.discard_received(&self.shared, state);
        if !socket.tx.is_idle() {
            socket.start_linger(state);
        }
        if socket.is_done() {
            self.close(state, slot);
        }
    }

    /// Gives up on unsent datagrams when the linger time expires.
    pub(crate) fn on_linger(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(socket) = self.slots.find(id) {
            socket.tx.linger = None;
            socket.stop_send(&mut self.shared, state);
            if socket.is_done() {
                self.close(state, id.index);
            }
        }
    }

    /// Closes a dropped socket with nothing in flight and frees its slot.
    #[cold]
    fn close(&mut self, state: &mut LoopState, slot: u32) {
        let mut socket = self.slots.remove(slot);
        socket.discard_received(&self.shared, state);
        _ = socket.count_drops(state);
        if let Some(key) = socket.tx.linger {
            state.timers.remove(key);
        }
        socket.rx.waiters.notify_all(&mut state.deferred.drops);
        socket.tx.waiters.notify_all(&mut state.deferred.drops);
        state.close_now(socket.fd);
    }

    /// Returns true if all sockets have sent their queued datagrams.
    pub(crate) fn all_sent(&mut self) -> bool {
        self.slots.values().all(|socket| socket.tx.is_idle())
    }

    /// Closes all sockets. Handles that outlive the runtime return errors.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        for slot in self.slots.indices() {
            self.slots.get(slot).stop_send(&mut self.shared, state);
            self.drop_socket(state, slot);
        }
    }

    /// Returns a handle's slot and the state that all sockets share.
    #[inline]
    pub(crate) fn get(&mut self, slot: u32) -> (&mut DatagramSocket, &mut DatagramResources) {
        (self.slots.get(slot), &mut self.shared)
    }

    #[inline]
    pub(crate) fn turn_lists(&self) -> &TurnLists {
        &self.shared.turn_lists
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for socket in self.slots.values() {
            for waker in socket.rx.waiters.wakers() {
                waits.note(waker, || format!("for a datagram on descriptor {}", socket.fd));
            }
            for waker in socket.tx.waiters.wakers() {
                waits.note(waker, || format!("to send datagrams on descriptor {}", socket.fd));
            }
        }
    }

    /// Updates the counts of datagrams that the kernel has dropped.
    pub(crate) fn count_all_drops(&mut self, state: &mut LoopState) {
        self.slots.values().for_each(|socket| _ = socket.count_drops(state));
    }

    /// Makes the next turn fail, by completing the sends of a slot that does not exist.
    #[cfg(test)]
    pub(crate) fn break_next_turn(&mut self) {
        self.shared.turn_lists.unconfirmed_sends.push(1_000_000);
    }
}
