//! Partitions: pairs of addresses between which nothing arrives.

use super::links::AddressPair;
use super::{Net, NetEvent, SocketChange, SocketId};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The pairs and hosts that are cut off, and the changes that this keeps from arriving.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    pairs: Vec<AddressPair>,
    /// Hosts that are down.
    down: Vec<IpAddr>,
    /// Changes of connections, in the order in which they would have arrived.
    held: VecDeque<(SocketId, SocketChange)>,
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
        }
    }

    /// Ends a partition. Changes that it has held arrive now, before anything that comes later.
    pub(crate) fn repair(&mut self, a: IpAddr, b: IpAddr) {
        // Changes that are due by now would have arrived during the partition.
        self.run();
        self.partitions.pairs.retain(|cut| *cut != AddressPair::new(a, b));
        self.release_held();
    }

    /// Lets arrive what nothing holds any more.
    pub(super) fn release_held(&mut self) {
        for (id, change) in std::mem::take(&mut self.partitions.held) {
            match self.is_cut_off(id) {
                true => self.partitions.held.push_back((id, change)),
                false => self.time.schedule(self.time.now(), NetEvent::Socket(id, change)),
            }
        }
    }

    pub(super) fn is_partitioned(&self, a: IpAddr, b: IpAddr) -> bool {
        self.partitions.are_separated(a, b)
    }

    /// Whether a socket and its peer are separated.
    pub(super) fn is_cut_off(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        let ends = socket.local.zip(socket.remote);
        ends.is_some_and(|(local, remote)| self.is_partitioned(local.ip(), remote.ip()))
    }

    /// Keeps a change until the partition ends.
    pub(super) fn hold(&mut self, id: SocketId, change: SocketChange) {
        self.partitions.held.push_back((id, change));
    }
}
