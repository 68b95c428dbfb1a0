//! Datagrams that found no room.
//!
//! Where order matters they go back to the front of the queue, and everything waits with them. Where it does not, they are
//! set aside until there may be room, and others leave meanwhile. A Unix socket without a peer is told of nobody's room:
//! there, what was set aside first makes way when more is to be sent than the bound allows, so that readers that do not
//! read, however many, hold up nobody.

use super::Mailbox;
use super::failure::Failure;
use super::outbox::Outbox;
use super::parcel::State;
use crate::core::Inner;
use annulus_ring::Domain;
use rustix::io::Errno;

impl Mailbox {
    /// Nothing tells of the room of those it sends to.
    pub(super) fn is_blind(&self) -> bool {
        self.format.domain == Domain::Unix && !self.tx.connected
    }

    /// Something is set aside that may make way.
    pub(super) fn can_give_up(&self) -> bool {
        !self.tx.stuck.is_empty() && self.is_blind()
    }
}

impl Outbox {
    /// There may be room: what was set aside is queued again.
    pub(super) fn try_again(&mut self) {
        self.queue.append(&mut self.stuck);
    }
}

impl Inner {
    /// Whether another datagram would be accepted; what was set aside may have to make way.
    #[inline]
    pub(super) fn has_post_room(&mut self, slot: u32) -> bool {
        self.post.boxes.get(slot).tx.weight <= self.bounds.send || self.make_post_room(slot)
    }

    #[cold]
    fn make_post_room(&mut self, slot: u32) -> bool {
        let bound = self.bounds.send;
        while self.post.boxes.get(slot).tx.weight > bound {
            let mailbox = self.post.boxes.get(slot);
            if !mailbox.can_give_up() {
                return false;
            }
            self.give_up_first(slot);
        }
        true
    }

    fn give_up_first(&mut self, slot: u32) {
        let tx = &mut self.post.boxes.get(slot).tx;
        let Some(id) = tx.stuck.pop_front() else { return };
        tx.failure = Some(Failure::of(self.post.parcels.get(id), Errno::AGAIN).into());
        self.end_parcel(slot, id);
    }

    /// A parcel found no room.
    pub(super) fn set_aside(&mut self, slot: u32, id: u32) {
        self.post.parcels.get(id).state = State::Queued;
        let tx = &mut self.post.boxes.get(slot).tx;
        if tx.unordered { tx.stuck.push_back(id) } else { tx.queue.push_front(id) }
    }
}
