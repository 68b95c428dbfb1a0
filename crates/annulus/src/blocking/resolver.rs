//! Name lookups, which block.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Looks up host names.
#[derive(Clone, Default)]
pub(crate) enum Resolver {
    /// As configured on the system, with its files and servers.
    #[default]
    System,
    Given(Arc<Lookup>),
    /// For a simulated network, where the machine's answers would differ between runs.
    Simulated,
}

/// A program's own lookup function.
pub(crate) type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// Returns the addresses of a host, with this port. Blocks the thread.
    pub(crate) fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let with_port = |addresses: Vec<IpAddr>| {
            addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
        };
        match self {
            Self::System => (host, port).to_socket_addrs().map(Vec::from_iter),
            Self::Given(lookup) => lookup(host).map(with_port),
            Self::Simulated if host == "localhost" => {
                Ok(with_port(vec![Ipv4Addr::LOCALHOST.into()]))
            }
            Self::Simulated => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "a simulated network only knows the name localhost; set a resolver with `Builder::resolver`",
            )),
        }
    }
}
