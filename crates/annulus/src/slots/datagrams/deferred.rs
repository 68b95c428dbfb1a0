//! Datagrams that found no space at their destination.
//!
//! If order matters, such a datagram goes back to the front of the queue, and everything behind it waits. If it does not, the
//! datagram is *deferred*: it is tried again once there may be space, and others leave meanwhile.
//!
//! For a Unix socket, an event announces space only at the connected peer. So the datagrams deferred longest that go elsewhere
//! are discarded when the bound would keep further ones out: receivers that do not read, however many, block no other.

use super::errors::Failure;
use super::outgoing::{OutgoingDatagram, OutgoingState};
use super::send_state::SendState;
use super::{DatagramSlot, Shared};
use crate::base::io::Io;
use annulus_driver::Slab;
use annulus_kernel::Domain;
use rustix::io::Errno;

impl SendState {
    /// There may be space: deferred datagrams are queued again.
    pub(super) fn requeue_deferred(&mut self) {
        self.queue.append(&mut self.deferred);
    }

    /// A datagram found no space.
    pub(super) fn defer(&mut self, id: u32, datagram: &mut OutgoingDatagram) {
        (datagram.state, datagram.waited) = (OutgoingState::Queued, true);
        if self.unordered { self.deferred.push_back(id) } else { self.queue.push_front(id) }
    }
}

impl DatagramSlot {
    /// No event announces space at this datagram's destination.
    pub(super) fn has_no_space_event(&self, datagram: &OutgoingDatagram) -> bool {
        self.format.domain == Domain::Unix && !datagram.meta.to.is_empty()
    }

    /// Whether another datagram would be accepted. Deferred ones may be discarded for it.
    #[inline]
    pub(super) fn has_space(&mut self, shared: &mut Shared, io: &mut Io) -> bool {
        self.send.weight <= io.send_bound() || self.make_space(shared, io)
    }

    #[cold]
    fn make_space(&mut self, shared: &mut Shared, io: &mut Io) -> bool {
        let bound = io.send_bound();
        while self.send.weight > bound {
            let Some(at) = self.first_discardable(&mut shared.outgoing) else { return false };
            self.discard_deferred(shared, io, at);
        }
        true
    }

    /// The position of the first deferred datagram that may be discarded.
    pub(super) fn first_discardable(&self, outgoing: &mut Slab<OutgoingDatagram>) -> Option<usize> {
        self.send.deferred.iter().position(|id| self.has_no_space_event(outgoing.get(*id)))
    }

    fn discard_deferred(&mut self, shared: &mut Shared, io: &mut Io, at: usize) {
        let Some(id) = self.send.deferred.remove(at) else { return };
        let datagram = shared.outgoing.get(id);
        self.send.failures.add(Failure::of(datagram, Errno::AGAIN));
        self.send.release(io, datagram);
        shared.outgoing.free(id);
    }
}
