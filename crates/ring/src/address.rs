//! A socket address in the kernel's own layout.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const INET: u16 = 2;
const INET6: u16 = 10;
const CAPACITY: usize = 128;

/// A `struct sockaddr_storage` with its length: what `connect` and `bind` point to.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Address {
    bytes: [u8; CAPACITY],
    len: u32,
}

impl Address {
    /// An address from the kernel's bytes; longer ones than `sockaddr_storage` are cut.
    pub fn from_bytes(raw: &[u8]) -> Self {
        let len = raw.len().min(CAPACITY);
        let mut bytes = [0; CAPACITY];
        bytes[..len].copy_from_slice(&raw[..len]);
        Self { bytes, len: len as u32 }
    }

    /// The bytes in use.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// `sa_family`.
    pub fn family(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    /// The address as an internet one.
    ///
    /// # Errors
    /// `InvalidData` for any other family, named by number.
    pub fn to_inet(&self) -> io::Result<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        match self.family() {
            INET => Ok(SocketAddrV4::new(Ipv4Addr::from(field::<4>(b, 4)), port).into()),
            INET6 => {
                let flow = u32::from_be_bytes(field(b, 4));
                let scope = u32::from_ne_bytes(field(b, 24));
                Ok(SocketAddrV6::new(Ipv6Addr::from(field::<16>(b, 8)), port, flow, scope).into())
            }
            other => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("address family {other} is not an internet one"),
            )),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; CAPACITY];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (INET, 16)
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (INET6, 28)
            }
        };
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        Self { bytes, len }
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to_inet() {
            Ok(inet) => inet.fmt(f),
            Err(_) => write!(f, "family {}", self.family()),
        }
    }
}

fn field<const N: usize>(bytes: &[u8; CAPACITY], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internet_addresses_survive_the_round_trip() {
        for text in ["127.0.0.1:7000", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::from(address).to_inet().unwrap(), address, "{text}");
        }
    }

    #[test]
    fn another_family_is_named() {
        let unix = Address::from_bytes(&1u16.to_ne_bytes());
        assert!(unix.to_inet().unwrap_err().to_string().contains("family 1 "));
    }
}
