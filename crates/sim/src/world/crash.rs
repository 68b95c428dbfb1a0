//! The crash of a host: its operations at the device, and its calls until its rings are closed.

use super::World;
use crate::memory::DiskCall;
use crate::op::{OpKind, OpResult};
use rustix::io::Errno;
use std::net::IpAddr;

impl World {
    /// Cuts the power of a host. Operations that cannot be cancelled end now, so that closing its
    /// rings takes no time.
    pub(crate) fn crash(&mut self, host: IpAddr) {
        self.net.crash(host);
        self.wake();
        let rings = self.rings.iter().filter(|(_, ring)| ring.host == Some(host));
        let rings: Vec<u32> = rings.map(|(index, _)| index).collect();
        rings.into_iter().for_each(|ring| self.end_uncancellable(ring));
    }

    /// Cuts the power of a host and of its disk. Writes at the device may have been written in part.
    pub(crate) fn cut_power(&mut self, host: IpAddr) {
        let disk = self.disks.of_host(Some(host));
        let ids: Vec<_> =
            self.rings.iter().flat_map(|(ring, _)| self.ops.ids_of_ring(ring)).collect();
        for id in ids {
            let mut op = self.ops.take(id);
            if let OpKind::File(work) = &mut op.body
                && work.disk == disk
                && work.call.as_ref().is_some_and(DiskCall::is_write)
                && let Some(call) = work.call.take()
            {
                // The result does not matter: the power cut below keeps a random choice of the
                // unsynced bytes.
                _ = call.perform(self.disks.at_mut(disk));
            }
            self.ops.put(id, op);
        }
        self.crash(host);
        self.disks.at_mut(disk).cut_power(&mut self.random);
    }

    /// Ends the file operations of all rings that wait for the device, without an effect.
    pub(crate) fn abandon_device_work(&mut self) {
        let rings: Vec<u32> = self.rings.iter().map(|(index, _)| index).collect();
        rings.into_iter().for_each(|ring| self.end_uncancellable(ring));
    }

    /// Completes pending notifications, and fails file calls that are waiting for the device with
    /// `EIO`. The failed calls have no effect.
    fn end_uncancellable(&mut self, ring: u32) {
        for id in self.ops.ids_of_ring(ring) {
            match self.ops.peek(id).map(|op| &op.body) {
                Some(OpKind::Notification(_)) => self.run(id),
                Some(OpKind::File(_)) => {
                    let op = self.ops.take(id);
                    self.verify(&op);
                    self.end(id, op, OpResult::error(Errno::IO));
                }
                _ => {}
            }
        }
        self.wake();
    }

    /// Returns true if the host of a ring has crashed and has not been restarted.
    pub(super) fn is_down(&self, ring: u32) -> bool {
        self.rings.at(ring).host.is_some_and(|host| self.net.is_down(host))
    }
}
