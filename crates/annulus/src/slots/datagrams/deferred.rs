//! Datagrams that found no room.
//!
//! Where order matters they go back to the front of the queue, and everything waits with them. Where it does not, they are
//! set aside until there may be room, and others leave meanwhile. A Unix socket is told of nobody's room but its peer's:
//! what was set aside first on the way to others makes way when more is to be sent than the bound allows, so that readers that
//! do not read, however many, hold up nobody.

use super::Mailbox;
use super::errors::Failure;
use super::outgoing::{Parcel, State};
use super::send_state::Outbox;
use crate::runtime::inner::Inner;
use annulus_kernel::Domain;
use rustix::io::Errno;

impl Mailbox {
    /// Nothing tells of the room of who this one is for.
    pub(super) fn is_blind(&self, parcel: &Parcel) -> bool {
        self.format.domain == Domain::Unix && !parcel.envelope.to.is_empty()
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
        self.post.boxes.get(slot).tx.weight <= self.io.send_bound() || self.make_post_room(slot)
    }

    #[cold]
    fn make_post_room(&mut self, slot: u32) -> bool {
        let bound = self.io.send_bound();
        while self.post.boxes.get(slot).tx.weight > bound {
            let Some(place) = self.first_to_give_up(slot) else { return false };
            self.give_up(slot, place);
        }
        true
    }

    /// The place of what was set aside first and may make way.
    pub(super) fn first_to_give_up(&mut self, slot: u32) -> Option<usize> {
        let mailbox = self.post.boxes.get(slot);
        let parcels = &mut self.post.parcels;
        mailbox.tx.stuck.iter().position(|id| mailbox.is_blind(parcels.get(*id)))
    }

    fn give_up(&mut self, slot: u32, place: usize) {
        let tx = &mut self.post.boxes.get(slot).tx;
        let Some(id) = tx.stuck.remove(place) else { return };
        tx.failures.note(Failure::of(self.post.parcels.get(id), Errno::AGAIN));
        self.end_parcel(slot, id);
    }

    /// A parcel found no room.
    pub(super) fn set_aside(&mut self, slot: u32, id: u32) {
        let parcel = self.post.parcels.get(id);
        (parcel.state, parcel.waited) = (State::Queued, true);
        let tx = &mut self.post.boxes.get(slot).tx;
        if tx.unordered { tx.stuck.push_back(id) } else { tx.queue.push_front(id) }
    }
}
