//! Opening and closing of slots.

use super::{DatagramSlot, Datagrams, Format, Settings, SlotId};
use crate::base::io::Io;
use crate::timers::TimerAction;
use annulus_kernel::Fd;
use std::io;

impl DatagramSlot {
    /// Sets the time within which a dropped socket must have sent the datagrams it had accepted.
    pub(super) fn start_linger(&mut self, io: &mut Io) {
        io.linger(&mut self.send.linger, TimerAction::DatagramLinger(self.id));
    }

    /// Dropped, and nothing is in flight: [`Datagrams::close`] is due.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.dropped && self.recv.is_idle() && self.send.is_quiet()
    }
}

impl Datagrams {
    /// Takes a socket in. The first one makes the pool that all of them receive into.
    ///
    /// # Errors
    /// There is no memory for the pool, or the driver cannot receive datagrams. The descriptor then remains the caller's.
    pub(crate) fn add(
        &mut self,
        io: &mut Io,
        fd: Fd,
        format: &'static Format,
        settings: Settings,
    ) -> io::Result<u32> {
        io.driver.open_datagram_pool(self.pool_size)?;
        self.shared.pool = io.driver.datagram_pool().cloned();
        self.shared.addresses_sends = io.driver.addresses_sends();
        Ok(self.slots.insert_with(|id| DatagramSlot::new(id, fd, format, settings)))
    }

    /// The handle is gone. Accepted datagrams are still sent, within the linger.
    pub(crate) fn drop_socket(&mut self, io: &mut Io, index: u32) {
        let slot = self.slots.get(index);
        slot.dropped = true;
        slot.stop_recv(io);
        slot.discard_received(&self.shared, io);
        if !slot.send.is_idle() {
            slot.start_linger(io);
        }
        if slot.is_done() {
            self.close(io, index);
        }
    }

    /// The linger is over: datagrams that have not left are given up.
    pub(crate) fn on_linger(&mut self, io: &mut Io, id: SlotId) {
        if let Some(slot) = self.slots.find(id) {
            slot.send.linger = None;
            slot.stop_sends(&mut self.shared, io);
            if slot.is_done() {
                self.close(io, id.index);
            }
        }
    }

    /// Closes a dropped socket of which nothing is in flight, and frees its slot.
    #[cold]
    pub(super) fn close(&mut self, io: &mut Io, index: u32) {
        let mut slot = self.slots.remove(index);
        slot.discard_received(&self.shared, io);
        _ = slot.count_drops(io);
        if let Some(key) = slot.send.linger {
            io.timers.remove(key);
        }
        slot.recv.waiters.notify_all(&mut io.after.drops);
        slot.send.waiters.notify_all(&mut io.after.drops);
        io.close_now(slot.fd);
    }

    /// Whether all sockets have sent the datagrams they had accepted.
    pub(crate) fn all_sent(&mut self) -> bool {
        self.slots.values().all(|slot| slot.send.is_idle())
    }

    /// Ends all sockets. Handles that outlive the runtime find it ended.
    pub(crate) fn stop_all(&mut self, io: &mut Io) {
        for index in self.slots.indices() {
            self.slots.get(index).stop_sends(&mut self.shared, io);
            self.drop_socket(io, index);
        }
    }
}
