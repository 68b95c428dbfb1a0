//! Hosts: the address of a program, and the remains of its connections after a crash.

use super::links::AddressPair;
use super::{Datagram, Link, Net, SocketChange, SocketId, SocketState};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};

impl Net {
    /// Sets the host that makes the next calls; `None` has every address.
    pub(crate) fn set_host(&mut self, host: Option<IpAddr>) {
        self.host = host;
    }

    pub(crate) fn host(&self) -> Option<IpAddr> {
        self.host
    }

    /// Returns true if a host has crashed and has not been restarted.
    #[inline]
    pub(crate) fn is_down(&self, host: IpAddr) -> bool {
        self.partitions.is_down(host)
    }

    /// Translates an address as the calling host sees it: the wildcard and the loopback are the
    /// host's own address.
    pub(super) fn on_host(&self, address: SocketAddr) -> SocketAddr {
        match self.host {
            Some(host) if is_own(address.ip()) && host.is_ipv4() == address.is_ipv4() => {
                (host, address.port()).into()
            }
            _ => address,
        }
    }

    /// Returns the address to bind on the calling host.
    pub(super) fn bindable(&self, address: SocketAddr) -> Result<SocketAddr, Errno> {
        let address = self.on_host(address);
        let is_own = self.host.is_none_or(|host| host == address.ip());
        let is_group = address.ip().is_multicast() || super::udp::is_broadcast(address.ip());
        if is_own || is_group { Ok(address) } else { Err(Errno::ADDRNOTAVAIL) }
    }

    /// Cuts the power of a host. Its peers are not notified, so their connections are half-open
    /// until [`restart`](Self::restart). From then on the host answers their data with resets.
    pub(crate) fn crash(&mut self, host: IpAddr) {
        self.run();
        self.partitions.switch_off(host);
        let is_here = |local: SocketAddr| local.ip() == host;
        let concerned = self.sockets.iter().filter(|(_, socket)| {
            socket.unix.is_none() && !socket.is_datagram() && socket.local.is_some_and(is_here)
        });
        let ids: Vec<SocketId> = concerned.map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.vanish(id));
        self.lose_datagrams(host);
        self.probe_cut_off();
    }

    /// Drops all datagrams in flight from and to a host, and the reports about datagrams that found
    /// no receiver.
    fn lose_datagrams(&mut self, host: IpAddr) {
        let concerns = |datagram: &Datagram| {
            let route = datagram.route;
            route.is_some_and(|(from, to)| from.ip() == host || to.ip() == host)
        };
        let lost = self.in_flight.iter().filter(|(_, datagram)| concerns(datagram));
        let lost: Vec<u32> = lost.map(|(number, _)| number).collect();
        for number in lost {
            // The datagram's event stays scheduled, but has no effect.
            let datagram = std::mem::take(self.in_flight.at_mut(number));
            self.uncharge(&datagram);
        }
    }

    /// Destroys one end of a connection, which its peer does not notice.
    pub(super) fn vanish(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if !matches!(socket.state, SocketState::Open | SocketState::Connecting) {
            return;
        }
        socket.state = SocketState::Closed;
        socket.vanished = true;
        let Some(peer) = socket.peer else { return };
        self.socket_mut(peer).inbound.discard_unsent();
        if matches!(self.socket(peer).state, SocketState::Connecting) {
            // The answer to the connect is lost, so the peer repeats its attempt.
            self.socket_mut(id).peer = None;
            self.socket_mut(peer).peer = None;
            self.retry_connect(peer, 0);
        }
    }

    /// Starts a host again, without its connections. Data that was held for it arrives now.
    pub(crate) fn restart(&mut self, host: IpAddr) {
        self.run();
        self.partitions.switch_on(host);
        self.release_held();
        self.note_reachable();
    }

    pub(crate) fn usual_link(&self) -> Link {
        self.links.usual
    }

    /// `None` restores the usual link.
    pub(crate) fn set_link(&mut self, a: IpAddr, b: IpAddr, link: Option<Link>) {
        self.links.set(AddressPair::new(a, b), link);
    }

    /// Resets the connections between two addresses, at both ends.
    pub(crate) fn reset_between(&mut self, a: IpAddr, b: IpAddr) {
        let ends = (a.to_canonical(), b.to_canonical());
        let ids: Vec<SocketId> = self
            .sockets
            .iter()
            .filter_map(|(id, socket)| {
                let (local, remote) = (socket.local?.ip(), socket.remote?.ip());
                let is_between = (local.to_canonical(), remote.to_canonical()) == ends;
                (is_between && socket.is_open() && !socket.is_datagram()).then_some(id)
            })
            .collect();
        ids.into_iter().for_each(|id| self.reset_both(id));
    }

    /// Drops a change if a crash has destroyed one end of its connection. If that is the receiving
    /// end, answers data with a reset. Returns false if the connection is intact.
    pub(super) fn drop_if_lost(&mut self, id: SocketId, change: SocketChange) -> bool {
        let (segment, is_sent) = match change {
            SocketChange::Segment(len) => (len as usize, true),
            SocketChange::EndOfStream => (0, true),
            SocketChange::Attempt(_)
            | SocketChange::Established
            | SocketChange::Refused
            | SocketChange::Reset => (0, false),
        };
        let socket = self.socket(id);
        let (vanished, peer) = (socket.vanished, socket.peer);
        let is_from_vanished = is_sent && peer.is_some_and(|peer| self.socket(peer).vanished);
        if !vanished && !is_from_vanished {
            return false;
        }
        self.socket_mut(id).inbound.lose(segment);
        if let Some(peer) = peer.filter(|_| vanished && is_sent) {
            self.schedule_change(peer, SocketChange::Reset);
        }
        true
    }
}

fn is_own(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}
