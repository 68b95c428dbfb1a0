//! Several hosts on one simulated kernel.

use crate::net::Link;
use crate::sim::Sim;
use crate::timeline::nanos;
use std::net::IpAddr;
use std::time::Duration;

/// The calls for a program that runs several hosts on one simulated kernel, and names the host that calls it. They are a trait of their
/// own because a test of programs has no use for them: a call within one of the hosts would mix them up.
///
/// ```
/// use annulus_sim::{Hosts, Sim};
/// use std::net::{IpAddr, Ipv4Addr};
///
/// let sim = Sim::builder(1).build();
/// let server = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// sim.set_host(Some(server));
/// // What is called here is called by the server.
/// sim.set_host(None);
/// assert!(!sim.pass_until(None)); // Nothing can happen.
/// ```
pub trait Hosts {
    /// Calls from now on are those of the host with this address, or with `None` of one that has every address, as at first. On a host,
    /// an unbound socket has its address, the wildcard and the loopback are that address, and others cannot be bound. A ring belongs to
    /// the host that has set it up.
    fn set_host(&self, host: Option<IpAddr>);

    /// A host loses its power: its connections are gone, and nothing arrives at it until [`restart`](Self::restart). Peers are not notified,
    /// so that their connections are half-open. Data that it had sent or that is in flight, datagrams too, is lost.
    ///
    /// The descriptors and rings remain to be closed, for which no time passes: operations at the device end with EIO without an effect,
    /// and so do file calls until the restart. The page cache is not lost: all hosts share one disk.
    fn crash(&self, host: IpAddr);

    /// The host is there again. Data from peers to connections of which it knows no more gets a reset.
    fn restart(&self, host: IpAddr);

    /// Lets time pass until a ring has something to do, or until this time, counted from the beginning. False if neither can come.
    fn pass_until(&self, deadline: Option<Duration>) -> bool;

    /// The link of all addresses that have none of their own.
    fn usual_link(&self) -> Link;

    /// Gives the way between two addresses a [`Link`] of its own, or with `None` the usual one again. Bytes that are on their way are
    /// not overtaken. Sockets have the buffers of the usual link.
    fn set_link(&self, a: IpAddr, b: IpAddr, link: Option<Link>);

    /// Resets all connections between two addresses: both ends get an error, and bytes are lost.
    fn reset(&self, a: IpAddr, b: IpAddr);
}

impl Hosts for Sim {
    fn set_host(&self, host: Option<IpAddr>) {
        self.world.borrow_mut().net.set_host(host);
    }

    fn crash(&self, host: IpAddr) {
        self.world.borrow_mut().crash(host);
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
