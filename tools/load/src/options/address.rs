//! Addresses on the command line: `HOST:PORT`, resolved only when needed.

use super::OptionsError;
use crate::clock;
use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long to try the addresses of a host with several addresses.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the other addresses once one has accepted a connection.
const PROBE_GRACE: Duration = Duration::from_millis(250);

/// A host, by name or number, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Returns the host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// If the port requires a privilege, returns the lowest port that does not: 1024, unless the
    /// machine is configured otherwise.
    pub fn first_unprivileged_port(&self) -> Option<u16> {
        let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let first = first.ok().and_then(|first| first.trim().parse().ok()).unwrap_or(1024);
        (1..first).contains(&self.port).then_some(first)
    }

    /// Returns the socket addresses of the host: at least one.
    ///
    /// # Errors
    /// Fails if the name cannot be resolved.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, OptionsError> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut seen = HashSet::new();
        let found: Vec<_> = found
            .map_err(|why| self.unresolved(&why.to_string()))?
            .filter(|address| seen.insert(*address))
            .collect();
        if found.is_empty() { Err(self.unresolved("it has no address")) } else { Ok(found) }
    }

    fn unresolved(&self, why: &str) -> OptionsError {
        let advice = match self.host.split_once('%') {
            Some((_, zone)) => {
                format!("is '{zone}' an interface of this machine, as `ip link` lists them?")
            }
            None => "check the name, or give a number such as 127.0.0.1".into(),
        };
        OptionsError::Failed(format!("cannot resolve '{}': {why}; {advice}", self.host))
    }

    /// Returns the addresses to connect to. If the host has several, they are those that accept a
    /// connection, or the first one if none does.
    pub(super) fn resolve_server(&self) -> Result<ServerAddresses, OptionsError> {
        Ok(ServerAddresses::choose(self.resolve()?))
    }
}

/// The addresses of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddresses {
    pub(super) first: SocketAddr,
    /// Further addresses to connect to.
    pub(super) more: Vec<SocketAddr>,
    /// Addresses that are not used.
    pub(super) skipped: Vec<SocketAddr>,
}

impl ServerAddresses {
    /// Chooses the addresses that accept a connection, or the first one if none does. `found` must
    /// not be empty.
    fn choose(found: Vec<SocketAddr>) -> ServerAddresses {
        let mut answers = match &found[..] {
            [_] => vec![true],
            _ => probe(&found),
        };
        if !answers.contains(&true) {
            answers[0] = true;
        }
        let mut used = Vec::new();
        let mut skipped = Vec::new();
        for (address, answers) in found.into_iter().zip(answers) {
            if answers { used.push(address) } else { skipped.push(address) }
        }
        let first = used.remove(0);
        ServerAddresses { first, more: used, skipped }
    }

    /// Uses only the first address. This is for UDP, where connecting does not show whether a
    /// server listens.
    pub(super) fn first_of(mut found: Vec<SocketAddr>) -> ServerAddresses {
        let first = found.remove(0);
        ServerAddresses { first, more: Vec::new(), skipped: found }
    }
}

/// Returns which addresses accept a connection. All are tried at the same time, so one that never
/// answers does not delay the others.
fn probe(addresses: &[SocketAddr]) -> Vec<bool> {
    let (sender, answers) = mpsc::channel();
    for (index, &address) in addresses.iter().enumerate() {
        let sender = sender.clone();
        let connect = move || {
            let is_answering = TcpStream::connect_timeout(&address, PROBE_TIMEOUT).is_ok();
            // No one receives the result of an address that answers too late.
            _ = sender.send((index, is_answering));
        };
        // If no thread can be started, the address counts as one that does not answer.
        _ = thread::Builder::new().name("annulus-probe".into()).spawn(connect);
    }
    drop(sender);
    let mut answering = vec![false; addresses.len()];
    let mut until = clock::now() + PROBE_TIMEOUT;
    while let Ok((index, is_answering)) = answers.recv_timeout(until.saturating_sub(clock::now())) {
        answering[index] = is_answering;
        if is_answering {
            until = until.min(clock::now() + PROBE_GRACE);
        }
    }
    answering
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (host, port) =
            text.rsplit_once(':').ok_or("no port: write HOST:PORT, such as 127.0.0.1:7000")?;
        let port =
            port.parse().map_err(|_| format!("'{port}' is not a valid port: use 0 to 65535"))?;
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

/// Checks a host, and returns it without the brackets of a numeric IPv6 address.
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
    // A host of digits and dots is a number, so an invalid one must not be resolved as a name.
    let numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err(format!("'{host}' is not an IPv4 address: write four numbers from 0 to 255"));
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    };
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    #[test]
    fn well_formed_addresses_round_trip() {
        for text in
            ["127.0.0.1:7000", "localhost:0", "[::1]:80", "[fe80::1%eth0]:7", "a-b.example:65535"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_address_error_says_what_to_write() {
        for (text, part) in [
            ("127.0.0.1", "no port"),
            ("127.0.0.1:", "is not a valid port"),
            ("127.0.0.1:65536", "'65536' is not a valid port"),
            ("127.0.0.1:x", "'x' is not a valid port"),
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
    fn ipv6_zone_accepts_interface_name_or_number() {
        let resolve = |text: &str| text.parse::<Address>().unwrap().resolve();
        let expected = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 1);
        for text in ["[fe80::1%lo]:7", "[fe80::1%1]:7"] {
            assert_eq!(resolve(text).unwrap(), [expected.into()], "{text}");
        }
        let error = resolve("[fe80::1%nowhere]:7").unwrap_err().to_string();
        assert!(
            error.contains("is 'nowhere' an interface") && error.contains("ip link"),
            "{error}"
        );
    }

    #[test]
    fn numeric_address_resolves_to_itself() {
        let address: Address = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(address.resolve().unwrap(), ["127.0.0.1:7000".parse().unwrap()]);
        assert_eq!(address.resolve_server().unwrap().first.port(), 7000);
    }

    /// Returns a listener whose queue of connections is full, so that it never answers, and the
    /// connections in its queue.
    fn silent_listener() -> (OwnedFd, SocketAddr, Vec<OwnedFd>) {
        let stream = || {
            let (family, flags) = (AddressFamily::INET, SocketFlags::NONBLOCK);
            socket_with(family, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = stream();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, 0).unwrap();
        let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
        let queued = (0..8).map(|_| {
            let stream = stream();
            _ = connect(&stream, &address);
            stream
        });
        let queued = queued.collect();
        (listener, address, queued)
    }

    #[test]
    fn all_answering_addresses_are_used_and_others_are_skipped() {
        let listeners = ["127.0.0.1:0", "127.0.0.2:0"].map(|at| TcpListener::bind(at).unwrap());
        let [one, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let (_listener, silent, _queued) = silent_listener();
        let began = clock::now();
        let chosen = ServerAddresses::choose(vec![silent, one, other]);
        let expected = ServerAddresses { first: one, more: vec![other], skipped: vec![silent] };
        assert_eq!(chosen, expected);
        assert!(
            (clock::now() - began) < PROBE_TIMEOUT,
            "the silent address used up the time limit"
        );
        let closed = {
            let listener = TcpListener::bind("127.0.0.3:0").unwrap();
            listener.local_addr().unwrap()
        };
        let chosen = ServerAddresses::choose(vec![closed, closed]);
        assert_eq!((chosen.first, chosen.skipped), (closed, vec![closed]));
    }
}
