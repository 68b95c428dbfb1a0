//! The links between pairs of addresses.

use super::{Link, Socket};
use std::net::IpAddr;

/// Two addresses in ascending order, so that a pair has no direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressPair(IpAddr, IpAddr);

impl AddressPair {
    pub(super) fn new(a: IpAddr, b: IpAddr) -> Self {
        let (a, b) = (a.to_canonical(), b.to_canonical());
        Self(a.min(b), a.max(b))
    }

    pub(super) fn has(self, ip: IpAddr) -> bool {
        self.0 == ip || self.1 == ip
    }
}

/// The usual link, and the links of the pairs of addresses that have their own.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) usual: Link,
    pairs: Vec<(AddressPair, Link)>,
}

impl Links {
    pub(super) fn new(usual: Link) -> Self {
        Self { usual, pairs: Vec::new() }
    }

    pub(super) fn set(&mut self, pair: AddressPair, link: Option<Link>) {
        self.pairs.retain(|(other, _)| *other != pair);
        self.pairs.extend(link.map(|link| (pair, link)));
    }

    pub(super) fn between(&self, a: IpAddr, b: IpAddr) -> &Link {
        if self.pairs.is_empty() {
            return &self.usual;
        }
        let pair = AddressPair::new(a, b);
        let own = self.pairs.iter().find(|(other, _)| *other == pair);
        own.map_or(&self.usual, |(_, link)| link)
    }

    /// Returns the link of a socket's connection.
    #[inline]
    pub(super) fn of(&self, socket: &Socket) -> &Link {
        match (self.pairs.is_empty(), socket.local, socket.remote) {
            (false, Some(local), Some(remote)) => self.between(local.ip(), remote.ip()),
            _ => &self.usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn pair_has_its_own_link_in_both_directions_until_removed() {
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let mut links = Links::new(Link::default());
        let slow = Link { bandwidth: 1000, ..Link::default() };
        links.set(AddressPair::new(b, a), Some(slow));
        links.set(AddressPair::new(a, b), Some(slow));
        assert_eq!((*links.between(a, b), *links.between(b, a)), (slow, slow));
        assert_eq!(*links.between(a, c), Link::default());
        links.set(AddressPair::new(a, b), None);
        assert_eq!(*links.between(a, b), Link::default());
    }
}
