//! TCP and Unix streams as they are.

use super::{Piece, Transport};
use crate::plan::Plan;
use crate::server_address::{ServerAddress, unix_address};
use annulus::net::{ConnectOptions, RecvHalf, SendHalf, TcpStream, UnixStream};
use annulus::{Chunk, time};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Source addresses of the clients of an IPv4 loopback server.
pub const SOURCE_ADDRESSES: usize = 16;

/// A TCP or Unix stream.
pub(crate) struct Plain {
    receiver: RecvHalf,
    sender: SendHalf,
}

impl Plain {
    pub(crate) fn new((receiver, sender): (RecvHalf, SendHalf)) -> Plain {
        Plain { receiver, sender }
    }
}

impl Transport for Plain {
    fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        let lease = ready!(self.receiver.poll_recv(cx))?;
        Poll::Ready(Ok(lease.map(|lease| take(&lease))))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: Piece<'_>) -> Poll<io::Result<usize>> {
        match piece {
            Piece::Borrowed(bytes) => self.sender.poll_write(cx, bytes),
            Piece::Static(bytes) => {
                let mut chunk = Chunk::from(bytes);
                self.sender.poll_send(cx, &mut chunk).map_ok(|()| bytes.len())
            }
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.poll_shutdown(cx)
    }
}

/// The two halves of a TCP or Unix stream.
pub(crate) type Connection = (RecvHalf, SendHalf);

/// How the local addresses of connections are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// By the system: one for all.
    One,
    /// From [`SOURCE_ADDRESSES`], if the server has an IPv4 loopback address: for many connections that the client closes, since the
    /// system keeps the ports of those for a minute.
    Many,
}

/// Connects to the plan's server, within the plan's limit. `number` counts the connections of the run.
pub(crate) async fn connect(
    plan: &Plan,
    sources: Sources,
    number: usize,
) -> io::Result<Connection> {
    let address = match &plan.address {
        ServerAddress::Inet(address) => *address,
        ServerAddress::Unix(path) => return connect_unix(path, plan.connect_timeout).await,
    };
    let mut options = ConnectOptions::new().timeout(plan.connect_timeout);
    if let (Sources::Many, Some(source)) = (sources, source(address.ip(), number)) {
        options = options.source(source);
    }
    options.connect(address).await.map(TcpStream::split)
}

/// The source address of a connection, unless the kernel may choose it.
fn source(server: IpAddr, number: usize) -> Option<IpAddr> {
    let local = server.is_ipv4() && server.is_loopback();
    local.then(|| Ipv4Addr::new(127, 0, 0, 1 + (number % SOURCE_ADDRESSES) as u8).into())
}

/// Connects to a path or an abstract name, within `limit`.
async fn connect_unix(path: &Path, limit: Duration) -> io::Result<Connection> {
    let address = unix_address(path)?;
    let connected = time::timeout(limit, UnixStream::connect_addr(&address)).await;
    Ok(connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?.split())
}
