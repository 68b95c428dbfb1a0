//! A socket address in the kernel's layout.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::{self, ffi::OsStrExt};
use std::path::Path;

const UNIX_FAMILY: u16 = 1;
const INET_FAMILY: u16 = 2;
const INET6_FAMILY: u16 = 10;
const MAX_ADDRESS_BYTES: usize = 128;
/// Bytes of `struct sockaddr_in`.
const INET4_BYTES: usize = 16;
/// Bytes of the name of a Unix address, including the zero that ends a path or starts an abstract
/// name.
const UNIX_NAME_BYTES: usize = 108;

/// The name of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixName<'a> {
    /// No name: the socket is not bound.
    Unnamed,
    /// A path in the file system.
    Path(&'a [u8]),
    /// A name outside the file system, which exists as long as its socket.
    Abstract(&'a [u8]),
}

impl UnixName<'_> {
    /// Maximum length of a path or an abstract name.
    pub const MAX_BYTES: usize = UNIX_NAME_BYTES - 1;
}

/// A `struct sockaddr_storage` and its length, as `connect` and `bind` take it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Address {
    bytes: [u8; MAX_ADDRESS_BYTES],
    len: u32,
}

impl Address {
    /// Creates an address from the kernel's bytes. Ignores bytes beyond the size of
    /// `sockaddr_storage`.
    pub fn from_bytes(raw: &[u8]) -> Self {
        let len = raw.len().min(MAX_ADDRESS_BYTES);
        let mut bytes = [0; MAX_ADDRESS_BYTES];
        bytes[..len].copy_from_slice(&raw[..len]);
        Self { bytes, len: len as u32 }
    }

    /// Creates the address of a Unix socket.
    ///
    /// # Errors
    /// `InvalidInput` for a path or a name of more than [`UnixName::MAX_BYTES`] bytes, an empty
    /// path, or a path that contains a zero byte.
    pub fn unix(name: UnixName<'_>) -> io::Result<Self> {
        let mut bytes = [0; MAX_ADDRESS_BYTES];
        bytes[..2].copy_from_slice(&UNIX_FAMILY.to_ne_bytes());
        let (start, text, len) = match name {
            UnixName::Unnamed => (2, &[][..], 2),
            UnixName::Path(path) => (2, checked_path(path)?, 2 + path.len() + 1),
            UnixName::Abstract(name) => (3, name, 3 + name.len()),
        };
        if text.len() > UnixName::MAX_BYTES {
            return Err(too_long(text));
        }
        bytes[start..start + text.len()].copy_from_slice(text);
        Ok(Self { bytes, len: len as u32 })
    }

    /// Returns the address as a Unix address.
    ///
    /// # Errors
    /// `InvalidData`, with the number of the family, for any other family.
    pub fn to_unix(&self) -> io::Result<UnixName<'_>> {
        if self.family() != UNIX_FAMILY {
            return Err(other_family(self.family(), "a Unix address"));
        }
        Ok(match self.as_bytes().get(2..).unwrap_or_default() {
            [] => UnixName::Unnamed,
            [0, name @ ..] => UnixName::Abstract(name),
            path => UnixName::Path(path.split(|byte| *byte == 0).next().unwrap_or_default()),
        })
    }

    /// Creates the address of a Unix socket from a path. A path that begins with a zero byte is an
    /// abstract name, as in the kernel.
    ///
    /// # Errors
    /// Like [`unix`](Self::unix).
    pub fn from_unix_path(path: &Path) -> io::Result<Self> {
        Self::unix(match path.as_os_str().as_bytes() {
            [0, name @ ..] => UnixName::Abstract(name),
            path => UnixName::Path(path),
        })
    }

    /// Creates the address of a Unix socket from an address of the standard library.
    ///
    /// # Errors
    /// Like [`unix`](Self::unix).
    pub fn from_std_unix(address: &unix::net::SocketAddr) -> io::Result<Self> {
        match (address.as_pathname(), address.as_abstract_name()) {
            (Some(path), _) => Self::from_unix_path(path),
            (_, Some(name)) => Self::unix(UnixName::Abstract(name)),
            _ => Self::unix(UnixName::Unnamed),
        }
    }

    /// Returns the address as a Unix address of the standard library. The kernel can return a path
    /// that fills `sun_path` without a terminating zero (unix(7), under *Bugs*), which is one byte
    /// too long for the standard library. Such a path becomes an unnamed address, so that a peer
    /// cannot cause an error by its choice of address.
    ///
    /// # Errors
    /// Like [`to_unix`](Self::to_unix).
    pub fn to_std_unix(&self) -> io::Result<unix::net::SocketAddr> {
        // Datagrams from unnamed sockets have no address.
        if self.as_bytes().is_empty() {
            return unix::net::SocketAddr::from_pathname("");
        }
        match self.to_unix()? {
            UnixName::Path(path) if path.len() <= UnixName::MAX_BYTES => {
                unix::net::SocketAddr::from_pathname(OsStr::from_bytes(path))
            }
            UnixName::Abstract(name) => unix::net::SocketAddr::from_abstract_name(name),
            UnixName::Unnamed | UnixName::Path(_) => unix::net::SocketAddr::from_pathname(""),
        }
    }

    /// Returns the bytes in use.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Returns the address family (`sa_family`).
    pub fn family(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Returns the address as an internet address.
    ///
    /// # Errors
    /// `InvalidData`, with the number of the family, for any other family.
    #[inline]
    pub fn to_inet(&self) -> io::Result<SocketAddr> {
        Self::read_inet(self.as_bytes())
    }

    /// Bytes of the longest internet address: `struct sockaddr_in6`.
    pub const MAX_INET_BYTES: usize = 28;

    /// Space for an internet address, rounded up so that it is copied as whole machine words.
    pub const INET_SPACE_BYTES: usize = Self::MAX_INET_BYTES.next_multiple_of(16);

    /// Returns an internet address in the kernel's layout, and its length. The array is shorter
    /// than the 128 bytes of `sockaddr_storage`, because every datagram carries an address.
    #[inline]
    pub fn inet_bytes(address: SocketAddr) -> ([u8; Self::INET_SPACE_BYTES], usize) {
        let mut bytes = [0; Self::INET_SPACE_BYTES];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (INET_FAMILY, INET4_BYTES)
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (INET6_FAMILY, Self::MAX_INET_BYTES)
            }
        };
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        (bytes, len)
    }

    /// Reads an internet address from the kernel's bytes.
    ///
    /// # Errors
    /// `InvalidData`, with the number of the family, for any other family or too few bytes.
    #[inline]
    pub fn read_inet(raw: &[u8]) -> io::Result<SocketAddr> {
        let family = raw.first_chunk().map_or(0, |family| u16::from_ne_bytes(*family));
        match (
            family,
            raw.first_chunk::<INET4_BYTES>(),
            raw.first_chunk::<{ Self::MAX_INET_BYTES }>(),
        ) {
            (INET_FAMILY, Some(b), _) => {
                let port = u16::from_be_bytes([b[2], b[3]]);
                Ok(SocketAddrV4::new(Ipv4Addr::from(field::<4>(b, 4)), port).into())
            }
            (INET6_FAMILY, _, Some(b)) => {
                let port = u16::from_be_bytes([b[2], b[3]]);
                let flow = u32::from_be_bytes(field(b, 4));
                let scope = u32::from_ne_bytes(field(b, 24));
                Ok(SocketAddrV6::new(Ipv6Addr::from(field::<16>(b, 8)), port, flow, scope).into())
            }
            _ => Err(other_family(family, "an internet address")),
        }
    }
}

fn other_family(family: u16, wanted: &str) -> io::Error {
    let text = format!("address family {family} is not {wanted}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn checked_path(path: &[u8]) -> io::Result<&[u8]> {
    let text = match path {
        [] => "the path of a Unix socket is empty",
        _ if path.contains(&0) => "the path of a Unix socket contains a zero byte",
        _ => return Ok(path),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn too_long(name: &[u8]) -> io::Error {
    let text = format!(
        "a Unix socket name of {} bytes is above the limit of {}: use a shorter path, or a relative one",
        name.len(),
        UnixName::MAX_BYTES
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let (bytes, len) = Self::inet_bytes(address);
        Self::from_bytes(&bytes[..len])
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.to_inet(), self.to_unix()) {
            (Ok(inet), _) => inet.fmt(f),
            (_, Ok(UnixName::Unnamed)) => f.write_str("unnamed"),
            (_, Ok(UnixName::Path(path))) => write!(f, "{}", path.escape_ascii()),
            (_, Ok(UnixName::Abstract(name))) => write!(f, "@{}", name.escape_ascii()),
            _ => write!(f, "family {}", self.family()),
        }
    }
}

#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internet_addresses_are_read_as_written() {
        for text in ["127.0.0.1:7000", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::from(address).to_inet().unwrap(), address, "{text}");
        }
    }

    #[test]
    fn errors_give_the_address_family() {
        let unix = Address::from_bytes(&1u16.to_ne_bytes());
        assert!(unix.to_inet().unwrap_err().to_string().contains("family 1 "));
        let inet: Address = "127.0.0.1:1".parse::<SocketAddr>().unwrap().into();
        assert!(inet.to_unix().unwrap_err().to_string().contains("family 2 "));
    }

    #[test]
    fn unix_addresses_are_read_as_written() {
        let longest = [b'x'; UnixName::MAX_BYTES];
        for name in [
            UnixName::Unnamed,
            UnixName::Path(b"/run/a.sock"),
            UnixName::Path(&longest),
            UnixName::Abstract(b""),
            UnixName::Abstract(b"a\0b"),
            UnixName::Abstract(&longest),
        ] {
            let address = Address::unix(name).unwrap();
            assert_eq!(Address::from_bytes(address.as_bytes()).to_unix().unwrap(), name);
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        let longer = [b'x'; UnixName::MAX_BYTES + 1];
        let text = |name| Address::unix(name).unwrap_err().to_string();
        for name in [UnixName::Path(&longer), UnixName::Abstract(&longer)] {
            assert!(text(name).contains("of 108 bytes is above the limit of 107"), "{name:?}");
        }
        assert!(text(UnixName::Path(b"")).contains("empty"));
        assert!(text(UnixName::Path(b"a\0b")).contains("zero byte"));
    }
}
