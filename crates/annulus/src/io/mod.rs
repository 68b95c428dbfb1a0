//! Moving bytes: the traits of streams, frames and lines, and copies between files and streams.

mod copy;
mod frame;
#[cfg(feature = "codec")]
mod framed;
#[cfg(feature = "futures-io")]
mod futures_io;
mod lines;
mod peek;
#[cfg(any(feature = "futures-io", feature = "tokio-io"))]
mod read_ahead;
mod recv;
mod send;
mod send_file;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod until;

pub use copy::{CopyTo, copy};
#[cfg(feature = "codec")]
pub use framed::Framed;
#[cfg(feature = "futures-io")]
pub use futures_io::FromFutures;
pub use lines::Lines;
pub use peek::Peek;
pub use recv::AsyncRecv;
pub use send::{AsyncSend, AsyncStream};
#[cfg(feature = "tokio-io")]
pub use tokio_io::FromTokio;
