//! The disks of a simulation: its own, and one per host that uses files.

use super::Disk;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(crate) type DiskId = u32;

/// The disk of programs that run on no host.
const OWN: DiskId = 0;

pub(crate) struct Disks {
    disks: Vec<Disk>,
    by_host: BTreeMap<IpAddr, DiskId>,
}

impl Disks {
    pub(crate) fn new(own: Disk) -> Self {
        Self { disks: vec![own], by_host: BTreeMap::new() }
    }

    pub(crate) fn at(&self, disk: DiskId) -> &Disk {
        &self.disks[disk as usize]
    }

    pub(crate) fn at_mut(&mut self, disk: DiskId) -> &mut Disk {
        &mut self.disks[disk as usize]
    }

    /// Returns the disk of a host, which begins as a copy of the simulation's own disk.
    pub(crate) fn of_host(&mut self, host: Option<IpAddr>) -> DiskId {
        let Some(host) = host else { return OWN };
        *self.by_host.entry(host).or_insert_with(|| {
            let copy = self.disks[OWN as usize].without_open_files();
            self.disks.push(copy);
            self.disks.len() as DiskId - 1
        })
    }

    /// Replaces the disk of a host. Files that are open on the old disk can then only be closed.
    pub(crate) fn replace(&mut self, host: IpAddr, disk: Disk) {
        self.disks.push(disk);
        self.by_host.insert(host, self.disks.len() as DiskId - 1);
    }

    pub(crate) fn drop_cache(&mut self) {
        self.disks.iter_mut().for_each(Disk::drop_cache);
    }
}
