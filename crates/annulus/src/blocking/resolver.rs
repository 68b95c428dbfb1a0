//! Look-ups of names, which block.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Looks names of hosts up.
#[derive(Clone, Default)]
pub(crate) enum Resolver {
    /// As the system is configured: its files, and servers.
    #[default]
    System,
    Given(Arc<Lookup>),
    /// The resolver of a simulated network: the machine's answer for a name would differ from run to run.
    Simulated,
}

/// A look-up of a program's own.
pub(crate) type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// The addresses of a host, with this port. Blocks the thread.
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
                "a simulated network has no names but localhost; give the Builder a resolver",
            )),
        }
    }
}
