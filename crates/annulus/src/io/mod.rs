//! Moving bytes: the traits of streams, frames and lines, and copies between files and streams.

mod bidirectional;
mod copy;
mod copy_ends;
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
mod transfer;
mod until;

pub use crate::op_error::os_error;
pub use bidirectional::{CopyError, Direction, copy_bidirectional};
pub use copy::{copy, copy_at_most, copy_range};
pub use copy_ends::{CopySink, CopySource};
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
