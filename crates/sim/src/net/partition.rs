//! Partitions: pairs of addresses between which nothing arrives.

use super::links::AddressPair;
use super::{Net, NetEvent, SocketChange, SocketId};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The pairs and hosts that are cut off, and the changes that cannot arrive because of that.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    pairs: Vec<AddressPair>,
    down: Vec<IpAddr>,
    /// Changes of connections, in the order in which they would have arrived. The number is
    /// [`Socket::given_up`](super::Socket::given_up).
    held: VecDeque<(SocketId, u16, SocketChange)>,
}

impl Partitions {
    fn are_separated(&self, a: IpAddr, b: IpAddr) -> bool {
        if self.pairs.is_empty() && self.down.is_empty() {
            return false;
        }
        let pair = AddressPair::new(a, b);
        self.pairs.contains(&pair) || self.down.iter().any(|down| pair.has(*down))
    }

    pub(super) fn is_down(&self, host: IpAddr) -> bool {
        self.down.contains(&host)
    }

    pub(super) fn switch_off(&mut self, host: IpAddr) {
        self.switch_on(host);
        self.down.push(host);
    }

    pub(super) fn switch_on(&mut self, host: IpAddr) {
        self.down.retain(|down| *down != host);
    }
}

impl Net {
    pub(crate) fn partition(&mut self, a: IpAddr, b: IpAddr) {
        if !self.partitions.pairs.contains(&AddressPair::new(a, b)) {
            self.partitions.pairs.push(AddressPair::new(a, b));
            self.probe_cut_off();
        }
    }

    /// Ends a partition. The changes it has held arrive now, before any later ones.
    pub(crate) fn repair(&mut self, a: IpAddr, b: IpAddr) {
        // Changes that are already due would have arrived during the partition, so they are held
        // first.
        self.run();
        self.partitions.pairs.retain(|cut| *cut != AddressPair::new(a, b));
        self.release_held();
        self.note_reachable();
    }

    /// Schedules the held changes whose connections are no longer cut off.
    pub(super) fn release_held(&mut self) {
        for (id, given_up, change) in std::mem::take(&mut self.partitions.held) {
            match self.is_cut_off(id) {
                true => self.partitions.held.push_back((id, given_up, change)),
                false => {
                    let event = NetEvent::Socket { id, given_up, change };
                    self.time.schedule(self.time.now(), event);
                }
            }
        }
    }

    pub(super) fn is_partitioned(&self, a: IpAddr, b: IpAddr) -> bool {
        self.partitions.are_separated(a, b)
    }

    /// Returns true if a partition separates a socket from its peer.
    pub(super) fn is_cut_off(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        let ends = socket.local.zip(socket.remote);
        ends.is_some_and(|(local, remote)| self.is_partitioned(local.ip(), remote.ip()))
    }

    /// Holds a change until the partition ends.
    pub(super) fn hold(&mut self, id: SocketId, change: SocketChange) {
        self.partitions.held.push_back((id, self.socket(id).given_up, change));
        self.note_held(id, change);
    }
}
