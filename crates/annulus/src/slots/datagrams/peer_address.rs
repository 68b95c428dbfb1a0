//! The address of a peer. Every datagram has one, so short addresses need no allocation.

use annulus_kernel::Address;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

const MAX_INLINE_BYTES: usize = Address::INET_SPACE_BYTES;

/// An address in the kernel's layout. An empty one means the peer of a connected socket.
#[derive(Clone, PartialEq)]
pub(crate) struct PeerAddress(Repr);

#[derive(Clone, PartialEq)]
enum Repr {
    /// Internet addresses, and short paths.
    Short([u8; MAX_INLINE_BYTES], u8),
    Long(Rc<[u8]>),
}

impl PeerAddress {
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() > MAX_INLINE_BYTES {
            return Self(Repr::Long(bytes.into()));
        }
        let mut short = [0; MAX_INLINE_BYTES];
        short[..bytes.len()].copy_from_slice(bytes);
        Self(Repr::Short(short, bytes.len() as u8))
    }

    /// Returns the kernel's bytes. They do not move unless the address does.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short(bytes, len) => &bytes[..usize::from(*len)],
            Repr::Long(bytes) => bytes,
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> Address {
        Address::from_bytes(self.as_bytes())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl Default for PeerAddress {
    fn default() -> Self {
        Self(Repr::Short([0; MAX_INLINE_BYTES], 0))
    }
}

impl From<SocketAddr> for PeerAddress {
    #[inline]
    fn from(address: SocketAddr) -> Self {
        let (bytes, len) = Address::inet_bytes(address);
        Self(Repr::Short(bytes, len as u8))
    }
}

impl From<Address> for PeerAddress {
    #[inline]
    fn from(address: Address) -> Self {
        Self::from_bytes(address.as_bytes())
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_addresses_keep_their_bytes() {
        for len in [0, 2, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 110] {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let address = PeerAddress::from_bytes(&bytes);
            assert_eq!((address.as_bytes(), address.is_empty()), (&*bytes, len == 0));
            assert!(address == PeerAddress::from_bytes(&bytes));
        }
    }
}
