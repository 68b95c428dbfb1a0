//! Sockets: TCP, UDP, Unix.

mod acceptor;
mod datagram;
mod limit;
mod listener;
mod parts;
mod postbox;
mod resolve;
mod socket;
mod split;
mod stream;
mod udp;
mod unix;

pub use annulus_kernel::Credentials;
pub use datagram::{Datagram, Transmit};
pub use limit::ConnectionLimit;
pub(crate) use limit::Permit;
pub use listener::{ListenOptions, TcpListener};
pub use parts::Parts;
pub use postbox::SendMail;
pub use socket::Send;
pub(crate) use socket::{AsSocket, Socket};
pub use split::{RecvHalf, SendHalf};
pub use stream::{ConnectOptions, TcpStream};
pub use udp::{UdpOptions, UdpSocket};
pub use unix::{UnixDatagram, UnixListener, UnixMessage, UnixOptions, UnixStream};
