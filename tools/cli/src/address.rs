//! Addresses on the command line: `HOST:PORT`, resolved late.

use crate::doctor::sysctl;
use anyhow::{Context, Result, anyhow, bail};
use rustix::net::netdevice;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixDatagram;
use std::str::FromStr;
use std::time::Duration;

/// How long to try each address of a host that has several.
const TRY: Duration = Duration::from_secs(2);

/// A host, by name or by number, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// If its port requires a privilege, the first one that does not: 1024, unless this machine has another limit.
    pub(crate) fn first_free_of_privilege(&self) -> Option<u16> {
        let first = sysctl("net/ipv4/ip_unprivileged_port_start");
        let first = first.and_then(|first| first.parse().ok()).unwrap_or(1024);
        (1..first).contains(&self.port).then_some(first)
    }

    /// Every socket address of the host; at least one.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>> {
        if let Some((ip, zone)) = self.zoned() {
            return Ok(vec![SocketAddrV6::new(ip, self.port, 0, interface(zone)?).into()]);
        }
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

    /// The parts of an IPv6 address with a zone: `fe80::1%eth0`.
    fn zoned(&self) -> Option<(Ipv6Addr, &str)> {
        let (ip, zone) = self.host.split_once('%')?;
        Some((ip.parse().ok()?, zone))
    }

    /// The address to connect to: of several, the first that answers.
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

/// The number of a network interface, by number or by name.
fn interface(zone: &str) -> Result<u32> {
    if let Ok(number) = zone.parse() {
        return Ok(number);
    }
    // Any socket serves for this call.
    let socket = UnixDatagram::unbound()
        .with_context(|| format!("cannot look for the interface '{zone}'"))?;
    netdevice::name_to_index(&socket, zone).map_err(|error| {
        anyhow!(
            "no interface '{zone}' ({error}): name one of this machine, as `ip link` lists them"
        )
    })
}

/// The host without the brackets of a numeric IPv6 address.
fn check_host(host: &str) -> Result<&str, String> {
    if let Some(rest) = host.strip_prefix('[') {
        let inner = rest.strip_suffix(']').filter(|inner| {
            let (ip, zone) = inner.split_once('%').unwrap_or((inner, "none"));
            ip.parse::<Ipv6Addr>().is_ok() && !zone.is_empty()
        });
        return inner.ok_or_else(|| {
            format!("'{host}' is not an IPv6 address: write [::1]:PORT, or [fe80::1%eth0]:PORT")
        });
    }
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == ':' || c == '/') {
        return Err(format!(
            "'{host}' is not a host: write HOST:PORT, such as 127.0.0.1:7000 or [::1]:7000"
        ));
    }
    // A name of digits and dots is an invalid number; it is not resolved.
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
        for text in
            ["127.0.0.1:7000", "localhost:0", "[::1]:80", "[fe80::1%eth0]:7", "a-b.example:65535"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_addresses_are_refused_with_a_remedy() {
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
            ("[::1:80", "'[::1' is not an IPv6 address"),
            ("[fe80::1%]:80", "[fe80::1%eth0]:PORT"),
            ("[%lo]:80", "not an IPv6 address"),
            ("a b:80", "not a host"),
            ("http://a:80", "not a host"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_zone_is_an_interface_by_name_or_number() {
        let resolve = |text: &str| text.parse::<Address>().unwrap().resolve();
        let expected = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0, 1);
        for text in ["[::1%lo]:7", "[::1%1]:7"] {
            assert_eq!(resolve(text).unwrap(), [expected.into()], "{text}");
        }
        let error = resolve("[fe80::1%nowhere]:7").unwrap_err().to_string();
        assert!(error.contains("no interface 'nowhere'") && error.contains("ip link"), "{error}");
    }

    #[test]
    fn numbers_resolve_to_themselves() {
        let address: Address = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(address.resolve().unwrap(), ["127.0.0.1:7000".parse().unwrap()]);
        assert_eq!(address.resolve_one().unwrap().port(), 7000);
    }
}
