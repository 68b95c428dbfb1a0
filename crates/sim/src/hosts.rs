//! Several hosts on one simulated kernel.

use crate::fs::{Device, Disk};
use crate::net::Link;
use crate::sim::Sim;
use crate::timeline::nanos;
use std::net::IpAddr;
use std::time::Duration;

/// Calls for a program that runs several hosts on one simulated kernel and tells the kernel which
/// host makes each call. They are a separate trait because code that runs on one host must not use
/// them.
///
/// ```
/// use annulus_sim::{Hosts, Sim};
/// use std::net::{IpAddr, Ipv4Addr};
///
/// let sim = Sim::builder(1).build();
/// let server = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// sim.set_host(Some(server));
/// // Calls made here come from the server.
/// sim.set_host(None);
/// assert!(!sim.pass_until(None)); // Nothing can happen.
/// ```
pub trait Hosts {
    /// Sets the host that later calls come from, by its address. `None`, the initial value, is a
    /// host that has every address. On a host, the wildcard and loopback addresses mean the host's
    /// own address, unbound sockets use it, and no other address can be bound. A ring belongs to
    /// the host that set it up.
    fn set_host(&self, host: Option<IpAddr>);

    /// Cuts the power of a host. Its connections are gone, and nothing arrives at it until
    /// [`restart`](Self::restart). Peers are not notified, so their connections are half-open.
    /// Everything that the host has sent and that is still in flight is lost, including datagrams.
    ///
    /// The descriptors and rings of the host stay open until they are closed, which takes no time.
    /// File operations that wait for the device end with EIO and have no effect. File calls fail
    /// with EIO until the restart. The page cache is kept, as if only the program had ended.
    fn crash(&self, host: IpAddr);

    /// Like [`crash`](Self::crash), but the host's disk also loses its power: it keeps the synced
    /// data and a random choice of the rest, including writes that wait for the device. Files that
    /// are still open can only be closed.
    fn cut_power(&self, host: IpAddr);

    /// Returns a copy of a host's disk as it is at this moment, without open files. A host's disk
    /// begins as a copy of [`Sim::disk`](crate::Sim::disk).
    fn disk_of(&self, host: IpAddr) -> Disk;

    /// Gives a host another disk. Files that are open on the old one can only be closed.
    fn set_disk_of(&self, host: IpAddr, disk: Disk);

    /// Returns the device of a host's disk.
    fn device_of(&self, host: IpAddr) -> Device;

    /// Replaces the device of a host's disk from now on.
    fn set_device_of(&self, host: IpAddr, device: Device);

    /// Ends all file operations that wait for the device, on all hosts, with EIO and without an
    /// effect. The end of a run does this, so that no write or sync completes after it.
    fn abandon_device_work(&self);

    /// Starts a host again. Peers that send on a connection from before the crash get a reset.
    fn restart(&self, host: IpAddr);

    /// Lets time pass until a ring or an epoll instance has something to do, or until `deadline`,
    /// counted from the start of the simulation. Returns false if there is no deadline and nothing
    /// can happen.
    fn pass_until(&self, deadline: Option<Duration>) -> bool;

    /// Returns the link between addresses that have no link of their own.
    fn usual_link(&self) -> Link;

    /// Sets the [`Link`] between two addresses; `None` restores the usual one. Bytes that are
    /// already on their way are not overtaken. Buffer sizes of sockets always come from the usual
    /// link.
    fn set_link(&self, a: IpAddr, b: IpAddr, link: Option<Link>);

    /// Resets all connections between two addresses. Both ends get an error, and bytes are lost.
    fn reset(&self, a: IpAddr, b: IpAddr);
}

impl Hosts for Sim {
    fn set_host(&self, host: Option<IpAddr>) {
        self.world.borrow_mut().net.set_host(host);
    }

    fn crash(&self, host: IpAddr) {
        self.world.borrow_mut().crash(host);
    }

    fn cut_power(&self, host: IpAddr) {
        self.world.borrow_mut().cut_power(host);
    }

    fn disk_of(&self, host: IpAddr) -> Disk {
        self.host_disk(Some(host))
    }

    fn set_disk_of(&self, host: IpAddr, disk: Disk) {
        self.world.borrow_mut().disks.replace(host, disk);
    }

    fn device_of(&self, host: IpAddr) -> Device {
        let disks = &mut self.world.borrow_mut().disks;
        let disk = disks.of_host(Some(host));
        disks.at(disk).device()
    }

    fn set_device_of(&self, host: IpAddr, device: Device) {
        self.set_host_device(Some(host), device);
    }

    fn abandon_device_work(&self) {
        self.world.borrow_mut().abandon_device_work();
    }

    fn restart(&self, host: IpAddr) {
        self.world.borrow_mut().net.restart(host);
    }

    fn pass_until(&self, deadline: Option<Duration>) -> bool {
        self.world.borrow_mut().pass_until(deadline.map(nanos))
    }

    fn usual_link(&self) -> Link {
        self.world.borrow().net.usual_link()
    }

    fn set_link(&self, a: IpAddr, b: IpAddr, link: Option<Link>) {
        self.world.borrow_mut().net.set_link(a, b, link);
    }

    fn reset(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.reset_between(a, b);
    }
}
