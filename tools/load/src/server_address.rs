use crate::invalid::{InvalidValue, invalid};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const UNIX_PREFIX: &str = "unix:";

/// The prefix of an abstract name. A path that begins with `@` is written `./@…`.
const ABSTRACT_PREFIX: u8 = b'@';

/// The maximum number of bytes in the path of a Unix socket, and in an abstract name.
pub const MAX_UNIX_PATH_BYTES: usize = 107;

/// Converts a path, or an abstract name after an `@`, to the address of a Unix socket.
///
/// # Errors
/// Fails if the path or name is longer than [`MAX_UNIX_PATH_BYTES`], or if the path contains a zero
/// byte.
pub fn unix_address(path: &Path) -> io::Result<UnixAddr> {
    let bytes = path.as_os_str().as_bytes();
    match bytes.strip_prefix(&[ABSTRACT_PREFIX]) {
        Some(name) => UnixAddr::from_abstract_name(name),
        None => UnixAddr::from_pathname(path),
    }
}

/// Returns the length of a path, or of an abstract name without its prefix.
fn path_length(path: &Path) -> usize {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(&[ABSTRACT_PREFIX]).unwrap_or(bytes).len()
}

/// An internet address, a path, or an abstract name: `127.0.0.1:7000`, `[::1]:7000`,
/// `unix:/run/echo`, `unix:@echo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A TCP or UDP address.
    Inet(SocketAddr),
    /// A Unix socket: see [`unix_address`].
    Unix(PathBuf),
}

impl ServerAddress {
    /// Checks that a server can have this address.
    ///
    /// # Errors
    /// Fails for port 0, and for paths that are empty or longer than [`MAX_UNIX_PATH_BYTES`].
    pub fn validate(&self) -> Result<(), InvalidValue> {
        match self {
            ServerAddress::Inet(address) if address.port() == 0 => Err(invalid(format!(
                "cannot connect to {address}: no server listens on port 0, so give the server's \
                 port"
            ))),
            ServerAddress::Unix(path)
                if !(1..=MAX_UNIX_PATH_BYTES).contains(&path_length(path)) =>
            {
                Err(invalid(format!(
                    "the path '{}' has {} bytes, but a Unix socket path has 1 to \
                     {MAX_UNIX_PATH_BYTES}",
                    path.display(),
                    path_length(path)
                )))
            }
            _ => Ok(()),
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> ServerAddress {
        ServerAddress::Inet(address)
    }
}

impl From<PathBuf> for ServerAddress {
    fn from(path: PathBuf) -> ServerAddress {
        ServerAddress::Unix(path)
    }
}

impl FromStr for ServerAddress {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<ServerAddress, Self::Err> {
        match text.strip_prefix(UNIX_PREFIX) {
            Some(path) => Ok(ServerAddress::Unix(path.into())),
            None => text.parse().map(ServerAddress::Inet),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Inet(address) => address.fmt(f),
            ServerAddress::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_display() {
        for text in ["127.0.0.1:7000", "[::1]:7", "[fe80::1%2]:7", "unix:/run/echo", "unix:@echo"] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.validate()), (text, Ok(())));
        }
        assert!("somewhere".parse::<ServerAddress>().is_err());
    }

    #[test]
    fn invalid_address_error_names_the_limit() {
        let error =
            |text: &str| text.parse::<ServerAddress>().unwrap().validate().unwrap_err().to_string();
        assert!(error("127.0.0.1:0").contains("port 0"));
        let long = error(&format!("unix:/{}", "x".repeat(MAX_UNIX_PATH_BYTES)));
        assert!(long.contains("has 108 bytes") && long.contains("1 to 107"), "{long}");
        assert!(error("unix:").contains("has 0 bytes"));
        assert!(error("unix:@").contains("has 0 bytes"));
        let name = format!("unix:@{}", "x".repeat(MAX_UNIX_PATH_BYTES));
        assert_eq!(name.parse::<ServerAddress>().unwrap().validate(), Ok(()));
    }

    #[test]
    fn path_with_at_prefix_is_an_abstract_name() {
        let address = |text: &str| unix_address(Path::new(text)).unwrap();
        assert_eq!(address("@echo").as_abstract_name(), Some(&b"echo"[..]));
        assert_eq!(address("./@echo").as_pathname(), Some(Path::new("./@echo")));
        let longest = "x".repeat(MAX_UNIX_PATH_BYTES);
        assert_eq!(address(&format!("@{longest}")).as_abstract_name(), Some(longest.as_bytes()));
        assert_eq!(address(&longest).as_pathname(), Some(Path::new(&longest)));
    }
}
