//! Endpoints on the command line: an address or a path, with its protocol.

use super::OptionsError;
use super::address::{Address, ServerAddresses};
use crate::server_address::ServerAddress;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

const UDP_PREFIX: &str = "udp://";
/// The optional prefix of a TCP address.
const TCP_PREFIX: &str = "tcp://";
const UNIX_PREFIX: &str = "unix:";
const UNIX_DATAGRAM_PREFIX: &str = "unix-datagram:";

/// Returns true if a target begins with a scheme, or with the prefix of a Unix socket.
pub(super) fn has_scheme(target: &str) -> bool {
    let prefixes = [UNIX_PREFIX, UNIX_DATAGRAM_PREFIX];
    target.contains("://") || prefixes.iter().any(|prefix| target.starts_with(prefix))
}

/// An endpoint: `HOST:PORT` for TCP, `udp://HOST:PORT`, `unix:/path` or `unix-datagram:/path`.
/// Instead of a path, it may have an abstract name after an `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address.
    Tcp(Address),
    /// A UDP address.
    Udp(Address),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A Unix datagram socket.
    UnixDatagram(PathBuf),
}

impl Endpoint {
    /// Returns the socket addresses of the endpoint: at least one for a host, and none for a path.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, OptionsError> {
        match self {
            Endpoint::Tcp(address) | Endpoint::Udp(address) => address.resolve(),
            Endpoint::Unix(_) | Endpoint::UnixDatagram(_) => Ok(Vec::new()),
        }
    }

    /// Returns the address of a server. If a TCP host has several addresses, it is the first one
    /// that accepts a connection, or the first one if none does.
    ///
    /// # Errors
    /// Fails if the name cannot be resolved.
    pub fn server(&self) -> Result<ServerAddress, OptionsError> {
        self.servers().map(|(first, _)| first)
    }

    /// Returns the address of a server and, unless it is a path, the addresses of its host.
    pub(super) fn servers(&self) -> Result<(ServerAddress, Option<ServerAddresses>), OptionsError> {
        let addresses = match self {
            Endpoint::Tcp(address) => address.resolve_server()?,
            // Connecting a UDP socket does not show whether a server listens.
            Endpoint::Udp(address) => ServerAddresses::first_of(address.resolve()?),
            Endpoint::Unix(path) | Endpoint::UnixDatagram(path) => {
                return Ok((ServerAddress::Unix(path.clone()), None));
            }
        };
        Ok((ServerAddress::Inet(addresses.first), Some(addresses)))
    }

    /// If the port requires a privilege, returns the lowest port that does not.
    pub fn first_unprivileged_port(&self) -> Option<u16> {
        match self {
            Endpoint::Tcp(address) | Endpoint::Udp(address) => address.first_unprivileged_port(),
            Endpoint::Unix(_) | Endpoint::UnixDatagram(_) => None,
        }
    }

    /// Returns true for streams, and false for datagrams.
    pub fn is_stream(&self) -> bool {
        matches!(self, Endpoint::Tcp(_) | Endpoint::Unix(_))
    }

    /// Returns true if the endpoint is a path or an abstract name.
    pub fn is_path(&self) -> bool {
        matches!(self, Endpoint::Unix(_) | Endpoint::UnixDatagram(_))
    }

    /// Formats one of the endpoint's addresses as it is written on the command line.
    pub fn display_address(&self, address: SocketAddr) -> String {
        match self {
            Endpoint::Udp(_) => format!("{UDP_PREFIX}{address}"),
            _ => address.to_string(),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        if let Some(path) = text.strip_prefix(UNIX_DATAGRAM_PREFIX) {
            return check_path(path).map(Endpoint::UnixDatagram);
        }
        if let Some(path) = text.strip_prefix(UNIX_PREFIX) {
            return check_path(path).map(Endpoint::Unix);
        }
        if let Some(address) = text.strip_prefix(UDP_PREFIX) {
            return address.parse().map(Endpoint::Udp);
        }
        let address = text.strip_prefix(TCP_PREFIX).unwrap_or(text);
        match address.split_once("://") {
            Some((scheme, _)) => Err(format!(
                "the scheme '{scheme}' is not supported: write HOST:PORT, udp://HOST:PORT, \
                 unix:/path or unix-datagram:/path"
            )),
            None => address.parse().map(Endpoint::Tcp),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => {
                // A host named `unix` needs the prefix, because `unix:7000` is a path.
                let text = address.to_string();
                let is_path =
                    text.starts_with(UNIX_PREFIX) || text.starts_with(UNIX_DATAGRAM_PREFIX);
                write!(f, "{}{text}", if is_path { TCP_PREFIX } else { "" })
            }
            Endpoint::Udp(address) => write!(f, "{UDP_PREFIX}{address}"),
            Endpoint::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
            Endpoint::UnixDatagram(path) => write!(f, "{UNIX_DATAGRAM_PREFIX}{}", path.display()),
        }
    }
}

fn check_path(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    ServerAddress::Unix(path.clone()).validate().map_err(|error| error.to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_scheme_selects_the_protocol() {
        let parsed = |text: &str| text.parse::<Endpoint>().unwrap();
        assert!(matches!(parsed("127.0.0.1:7000"), Endpoint::Tcp(_)));
        assert_eq!(parsed("tcp://[::1]:7"), parsed("[::1]:7"));
        assert!(matches!(parsed("udp://localhost:0"), Endpoint::Udp(_)));
        for text in ["tcp://unix:1", "tcp://unix-datagram:1", "udp://unix:1"] {
            assert!(!parsed(text).is_path() && parsed(text).to_string() == text);
        }
        for text in ["127.0.0.1:7000", "udp://[::1]:80"] {
            let endpoint = parsed(text);
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(
                endpoint.display_address(text.trim_start_matches(UDP_PREFIX).parse().unwrap()),
                text
            );
        }
        for text in ["unix:/run/echo", "unix-datagram:echo", "unix:@echo"] {
            assert!(parsed(text).is_path() && parsed(text).to_string() == text);
        }
    }

    #[test]
    fn unknown_scheme_error_says_what_to_write() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, part) in [
            ("http://a:80", "the scheme 'http' is not supported"),
            ("udp://a", "no port"),
            ("unix:", "has 0 bytes"),
            (&long, "has 108 bytes, but a Unix socket path has 1 to 107"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
