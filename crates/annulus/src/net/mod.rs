//! Sockets: TCP, UDP, Unix.

mod connect;
mod datagram;
mod datagram_handle;
mod keep_alive;
mod limit;
mod listener;
mod listener_handle;
mod new_fd;
mod option_methods;
mod parts;
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

pub use annulus_kernel::Credentials;
pub use connect::ConnectOptions;
pub use datagram::{Datagram, Transmit};
pub use datagram_handle::SendDatagram;
pub use keep_alive::KeepAlive;
pub use limit::ConnectionLimit;
pub(crate) use limit::Permit;
pub use listener::{ListenOptions, TcpListener};
pub use parts::Parts;
pub(crate) use recv_buffer::ended;
pub use split::{RecvHalf, SendHalf};
pub use stream::TcpStream;
pub use stream_handle::SendFuture;
pub(crate) use stream_handle::{AsStream, StreamHandle};
pub use udp::{UdpOptions, UdpSocket};
pub use unix::{UnixDatagram, UnixListener, UnixMessage, UnixOptions, UnixStream};
