//! Plain TCP and Unix streams.

use crate::exchange::SendBytes;
use crate::plan::Plan;
use crate::server_address::{ServerAddress, unix_address};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::{ConnectOptions, TcpStream, UnixStream};
use annulus::{Chunk, time};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The number of source addresses from which clients connect to a server on an IPv4 loopback
/// address, if the number of requests per connection is limited.
pub const SOURCE_ADDRESSES: usize = 16;

/// The maximum number of bytes that are queued at once.
const MAX_QUEUED_BYTES: usize = 256 << 10;

pub(crate) enum PlainTransport {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Calls a method that both kinds of streams have.
macro_rules! call {
    ($plain:expr, $method:ident($($argument:expr),*)) => {
        match $plain {
            PlainTransport::Tcp(stream) => stream.$method($($argument),*),
            PlainTransport::Unix(stream) => stream.$method($($argument),*),
        }
    };
}

impl PlainTransport {
    /// Connects to an address of the plan's server, within the plan's time limit. `number` counts
    /// the connections of the run. With `has_many_sources`, connections to an IPv4 loopback address
    /// come from [`SOURCE_ADDRESSES`] addresses in turn.
    pub(crate) async fn connect(
        plan: &Plan,
        number: usize,
        has_many_sources: bool,
    ) -> io::Result<PlainTransport> {
        if let ServerAddress::Unix(path) = &plan.address {
            return connect_unix(path, plan.connect_timeout).await;
        }
        let address = plan.inet_address(number).expect("the address is a path");
        let mut options = ConnectOptions::new().timeout(plan.connect_timeout);
        let source = has_many_sources.then(|| loopback_source(address.ip(), number)).flatten();
        if let Some(source) = source {
            options = options.source(source);
        }
        options.connect(address).await.map(PlainTransport::Tcp)
    }

    /// Returns the number of sent bytes that the server's kernel has not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        call!(self, unacknowledged())
    }

    pub(super) fn abort(self) {
        call!(self, abort());
    }

    pub(crate) fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        call!(self, poll_fill_buf(cx))
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        call!(self, consume(bytes));
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        call!(self, poll_write(cx, bytes))
    }

    pub(super) fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        let lease = ready!(call!(self, poll_recv(cx)))?;
        Poll::Ready(Ok(lease.map(|lease| take(&lease))))
    }

    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        piece: SendBytes<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut chunk = match piece {
            SendBytes::Borrowed(bytes) => {
                return self.poll_write(cx, &bytes[..bytes.len().min(MAX_QUEUED_BYTES)]);
            }
            // Copy a long request in parts, so that the number of accepted bytes follows the number
            // that the kernel has taken.
            SendBytes::Shared(bytes) if bytes.len() > MAX_QUEUED_BYTES => {
                return self.poll_write(cx, &bytes[..MAX_QUEUED_BYTES]);
            }
            SendBytes::Static(bytes) => Chunk::from(bytes),
            SendBytes::Shared(bytes) => Chunk::from(Rc::clone(bytes)),
        };
        let count = chunk.len();
        call!(self, poll_send(cx, &mut chunk)).map_ok(|()| count)
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        call!(self, poll_shutdown(cx))
    }
}

/// Returns the source address of a connection, or `None` if the kernel may choose it.
fn loopback_source(server: IpAddr, number: usize) -> Option<IpAddr> {
    let local = server.is_ipv4() && server.is_loopback();
    local.then(|| Ipv4Addr::new(127, 0, 0, 1 + (number % SOURCE_ADDRESSES) as u8).into())
}

/// Connects to a path or an abstract name, within `limit`.
async fn connect_unix(path: &Path, limit: Duration) -> io::Result<PlainTransport> {
    let address = unix_address(path)?;
    let connected = time::timeout(limit, UnixStream::connect_addr(&address)).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(PlainTransport::Unix)
}
