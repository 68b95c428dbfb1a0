//! TCP.

mod listener;
mod parts;
mod resolve;
mod socket;
mod split;
mod stream;

pub use listener::{ListenOptions, TcpListener};
pub use parts::Parts;
pub use socket::Send;
pub use split::{RecvHalf, SendHalf};
pub use stream::{ConnectOptions, TcpStream};
