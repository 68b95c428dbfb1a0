//! An I/O runtime for Linux, built on io_uring: the ring lends, you borrow.
//!
//! Receive memory belongs to the ring. When bytes arrive, the kernel picks a buffer, and you get a [`Lease`] on it. An
//! idle connection holds no buffer; dropping a future loses no byte; what you send leaves from the same memory, without a
//! copy, and goes back to the ring when it is done.
//!
//! ```no_run
//! use annulus::net::{TcpListener, TcpStream};
//!
//! fn main() -> std::io::Result<()> {
//!     annulus::run(async {
//!         let listener = TcpListener::bind("127.0.0.1:7000")?;
//!         loop {
//!             let (stream, _peer) = listener.accept().await?;
//!             annulus::spawn(echo(stream));
//!         }
//!     })
//! }
//!
//! async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
//!     while let Some(lease) = stream.recv().await? {
//!         stream.send(lease).await?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # What dropping a future does
//!
//! | future | dropped before it is ready |
//! |---|---|
//! | `accept`, `recv` | nothing is lost: the next call finds the connection, the bytes |
//! | `connect` | the attempt is cancelled, its socket closed when the kernel is done with it |
//! | datagrams: `recv…` | nothing is lost: the next call finds the datagram |
//! | datagrams: `send…` | before it is ready, nothing is sent; once it is, the datagram goes |
//! | `send` | once polled, the chunk is sent all the same, in order |
//! | `flush`, `shutdown` | what was queued is sent; a polled `shutdown` happens |
//! | `nop` | it happens, and its result is discarded |
//! | reads and writes of files, syncs | one that has begun goes on; its memory is kept until then |
//! | opening a file | it may be made or emptied all the same; its descriptor is closed |
//! | `sleep`, `timeout`, `tick` | the timer is removed |
//! | `JoinHandle` | the task goes on, detached |
//! | `Signals::recv` | nothing is lost |
//!
//! # Threads
//!
//! A runtime, its streams, tasks and leases stay on one thread. [`shards`](mod@shards) runs one on each core. [`Handle`],
//! [`SharedBytes`] and what [`shards::channel`] carries may go anywhere; [`net::TcpStream::into_parts`] moves a connection.

pub mod affinity;
#[cfg(feature = "bytes")]
mod bytes;
mod chunk;
pub mod fs;
#[doc(hidden)]
pub mod fuzzing;
pub mod io;
mod lease;
mod name;
pub mod net;
mod nop;
mod runtime;
pub mod shards;
mod shared;
pub mod signal;
#[cfg(feature = "sim")]
pub mod sim;
mod slots;
pub mod sync;
mod task;
pub mod time;
mod unwind;
mod waiters;

pub use annulus_driver::{Counters, Operations, UnknownOperations, Verbs};
pub use annulus_ring::SqPoll;
pub use chunk::Chunk;
pub use lease::Lease;
pub use name::UnknownName;
pub use nop::{Nop, nop};
pub use runtime::{
    Builder, DriverChoice, DriverInfo, DriverKind, Handle, MemoryLimit, Runtime, counters, handle,
    run,
};
pub use shards::shards;
pub use shared::SharedBytes;
pub use task::{JoinError, JoinHandle, consume_budget, spawn, yield_now};
