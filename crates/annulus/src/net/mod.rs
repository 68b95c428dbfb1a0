//! Sockets: TCP, UDP, Unix.

mod addresses;
mod connect;
mod datagram;
mod datagram_handle;
mod descriptors;
mod keep_alive;
mod listener;
mod listener_handle;
mod new_fd;
mod option_methods;
mod parts;
pub(crate) mod pipe;
mod race;
mod rebind;
mod recv_buffer;
mod resolve;
mod settings;
mod socket;
mod split;
mod stream;
mod stream_handle;
mod stream_methods;
mod udp;
mod unix;

pub use crate::errors::{OpError, Operation};
pub use crate::slots::connection_limit::ConnectionLimit;
pub use addresses::ToSocketAddrs;
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
pub use keep_alive::KeepAlive;
pub use listener::{ListenOptions, TcpListener};
pub use parts::Parts;
pub(crate) use pipe::{Receiver, Sender};
pub(crate) use recv_buffer::ended;
pub use resolve::lookup_host;
pub use split::{RecvHalf, ReuniteError, SendHalf};
pub use stream::TcpStream;
pub use stream_handle::SendFuture;
pub(crate) use stream_handle::{AsStream, Link, StreamHandle};
pub use udp::{UdpOptions, UdpSocket};
pub use unix::{UnixDatagram, UnixListener, UnixMessage, UnixOptions, UnixStream};
