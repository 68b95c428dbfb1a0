//! Addresses on the command line: `HOST:PORT`, resolved late.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// How long to try each address of a host that has several.
const TRY: Duration = Duration::from_secs(2);

/// What was written: a host, by name or by number, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Whether its port is one that takes a privilege: below 1024, unless this machine says otherwise.
    pub(crate) fn is_privileged_port(&self) -> bool {
        const FIRST: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
        let first = std::fs::read_to_string(FIRST).ok().and_then(|text| text.trim().parse().ok());
        (1..first.unwrap_or(1024)).contains(&self.port)
    }

    /// Every socket address it stands for; at least one.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<_> = found
            .with_context(|| {
                format!(
                    "cannot resolve '{}': check the name, or give a number such as 127.0.0.1",
                    self.host
                )
            })?
            .collect();
        if found.is_empty() {
            bail!("'{}' has no address: give a number such as 127.0.0.1", self.host);
        }
        Ok(found)
    }

    /// The address to call: of several, the first that answers.
    pub(crate) fn resolve_one(&self) -> Result<SocketAddr> {
        let found = self.resolve()?;
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY).is_ok();
        let several = found.len() > 1;
        Ok(*found.iter().find(|address| !several || answers(address)).unwrap_or(&found[0]))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (host, port) =
            text.rsplit_once(':').ok_or("no port: write HOST:PORT, such as 127.0.0.1:7000")?;
        let port = port.parse().map_err(|_| format!("'{port}' is not a port: use 0 to 65535"))?;
        let host = check_host(host)?.to_owned();
        Ok(Address { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The host without the brackets of a numeric IPv6 address.
fn check_host(host: &str) -> Result<&str, String> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or(inner);
        return inner
            .parse::<Ipv6Addr>()
            .map(|_| inner)
            .map_err(|_| format!("'{host}' is not an IPv6 address: write [::1]:PORT"));
    }
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == ':' || c == '/') {
        return Err(format!(
            "'{host}' is not a host: write HOST:PORT, such as 127.0.0.1:7000 or [::1]:7000"
        ));
    }
    // A name made of digits and dots is a number gone wrong; no resolver need be asked.
    let numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err(format!("'{host}' is not an IPv4 address: write four numbers up to 255"));
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed() {
        for text in ["127.0.0.1:7000", "localhost:0", "[::1]:80", "a-b.example:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_is_refused_with_the_way_out() {
        for (text, part) in [
            ("127.0.0.1", "no port"),
            ("127.0.0.1:", "not a port"),
            ("127.0.0.1:65536", "'65536' is not a port"),
            ("127.0.0.1:x", "'x' is not a port"),
            ("256.0.0.1:80", "not an IPv4 address"),
            ("1.2.3:80", "not an IPv4 address"),
            (":80", "not a host"),
            ("::1:80", "not a host"),
            ("[::g]:80", "not an IPv6 address"),
            ("a b:80", "not a host"),
            ("http://a:80", "not a host"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_resolve_to_themselves() {
        let address: Address = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(address.resolve().unwrap(), ["127.0.0.1:7000".parse().unwrap()]);
        assert_eq!(address.resolve_one().unwrap().port(), 7000);
    }
}
