//! Sockets: TCP, UDP, Unix.

mod connect;
mod datagram;
mod datagram_handle;
mod descriptors;
mod listener;
mod listener_handle;
mod option_methods;
mod parts;
mod recv_buffer;
mod resolve;
mod send_group;
mod socket;
mod split;
mod stream_handle;
mod tcp;
mod tcp_socket;
mod udp;
mod unix;

pub use crate::errors::{OpError, Operation};
pub use crate::slots::connection_limit::ConnectionLimit;
/// The process, the user and the group at the other end of a Unix socket.
///
/// ```
/// use annulus::net::{Credentials, UnixStream};
///
/// # annulus::run(async {
/// let (stream, _peer) = UnixStream::pair()?;
/// let Credentials { pid, uid, .. } = stream.peer_cred()?;
/// println!("process {pid} of user {uid}");
/// assert_eq!(pid, std::process::id());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(inline)]
pub use annulus_kernel::Credentials;
pub use connect::ConnectOptions;
pub use datagram::{Datagram, Transmit};
pub use datagram_handle::SendDatagram;
pub(crate) use descriptors::borrow_exposed;
pub use listener::{ListenOptions, TcpListener};
pub use parts::Parts;
pub(crate) use parts::given;
pub(crate) use recv_buffer::{RecvBuffer, ended};
pub use resolve::{ToSocketAddrs, lookup_host};
pub use send_group::{DropReason, Dropped, GroupCounts, MemberId, SendGroup, SlowMembers};
pub(crate) use socket::NewFd;
pub use split::{RecvHalf, ReuniteError, SendHalf};
pub use stream_handle::SendFuture;
pub(crate) use stream_handle::{AsStream, Link, StreamHandle};
pub use tcp::{KeepAlive, TcpStream};
pub use tcp_socket::TcpSocket;
pub use udp::{UdpOptions, UdpSocket};
pub use unix::{UnixDatagram, UnixListener, UnixMessage, UnixOptions, UnixStream};
