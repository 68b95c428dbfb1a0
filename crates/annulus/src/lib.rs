//! An asynchronous runtime for network servers on Linux: tasks, TCP, UDP, Unix sockets, files and timers, on io_uring.
//!
//! It is used as tokio's current-thread runtime is: [`run`] a future, [`spawn`] tasks, await I/O. Futures need not be `Send`.
//! [`shards`](mod@shards) starts such a runtime on each core. If the kernel or a sandbox denies io_uring, the same program runs on
//! epoll.
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
//! The [`guide`] goes from here to tuning; [coming from tokio](guide::coming_from_tokio) has a table of equivalents. The differences:
//!
//! - **Receiving takes no buffer.** [`recv`](net::TcpStream::recv) returns a [`Lease`] on a buffer of the runtime that the kernel has
//!   filled. Dropping the lease returns the buffer. An idle connection holds none.
//! - **Sending takes the bytes**: a lease, or any owned buffer. They are not copied, and leave at the end of the turn in one operation.
//! - **Operations belong to the socket, not to the future.** A `recv` or `accept` in a `select!` that loses can be dropped: the next
//!   call gets the bytes or the connection. A `send` that was polled is completed.
//!
//! # What dropping a future does
//!
//! | future | dropped before it is ready |
//! |---|---|
//! | `accept`, `recv` | nothing is lost: the next call returns the connection, the bytes |
//! | `fill_buf`, `peek`, `recv_exact`, `recv_until`, `read_frame`, `read_line` | nothing is lost: what has come is shown or returned by the next call |
//! | `next` of tokio-util's `Framed` | nothing is lost: the next call returns the message |
//! | `read_exact`, `read_until`, `read_to_end`, `write_all` | a part was read or queued |
//! | `connect` | the attempt is cancelled, and its socket closed |
//! | `lookup_host` | a look-up that has begun goes on, and its answer is dropped |
//! | datagrams: `recv…` | nothing is lost: the next call returns the datagram |
//! | datagrams: `send…` | nothing is sent |
//! | `readable`, `writable`, `AsyncFd::async_io` | nothing is lost: what was ready still is |
//! | `send` | once polled, the chunk is sent all the same, in order; it is not if an earlier, dropped `send` still fills the queue |
//! | `AsyncSend::send`, as of generic code | nothing of the chunk is sent |
//! | `write`, `write_vectored` | nothing was sent or queued |
//! | `TcpStream::close`, `into_parts`, `into_std` | the stream closes as a dropped one does |
//! | `drain`, `shutdown` | what was queued is sent; a polled `shutdown` is completed |
//! | `nop` | it is completed, and its result discarded |
//! | reads and writes of files, syncs | if started, it is completed, and its memory kept until then |
//! | calls of a `FileStream` | nothing is lost: what is read is shown by the next call, and what was queued is written, also at the end of the runtime |
//! | `io::copy`, `copy_at_most`, `copy_bidirectional` | a part was copied; between streams and files of this crate nothing is lost, and a second copy goes on behind it |
//! | opening a file | it may be created or truncated all the same; its descriptor is closed |
//! | `FileCache::open` | the cache is as before; out of descriptors, one of its files may have left it |
//! | `sleep`, `timeout`, `tick` | the timer is removed |
//! | `JoinHandle` | the task continues, detached |
//! | `spawn_blocking`, dropped or aborted | its handle: as `JoinHandle`; aborted before it has begun, the call is not made |
//! | `JoinSet` | its tasks are aborted; of `join_next` nothing is lost |
//! | `Signals::recv` | nothing is lost |
//! | `Child::wait`, `kill` | nothing is lost; once polled, `kill` has sent the signal |
//! | `Command::status`, `output`, `Child::wait_with_output` | the child is dropped: it goes on, or is killed with `kill_on_drop` |
//! | `Handle::stats`, `Handle::tasks` | the answer is discarded |
//!
//! # Threads
//!
//! A runtime, its streams, tasks and leases stay on one thread. [`Handle`], [`SharedBytes`] and [`shards::channel`] cross threads;
//! [`net::TcpStream::into_parts`] moves a connection.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod affinity;
mod base;
mod blocking;
mod bytes;
mod error_text;
mod file_policy;
pub mod fs;
#[doc(hidden)]
pub mod fuzzing;
pub mod guide;
pub mod io;
mod memory;
mod name;
pub mod net;
mod nop;
pub mod pipe;
pub mod process;
mod runtime;
pub mod shards;
pub mod signal;
#[cfg(feature = "sim")]
pub mod sim;
mod slots;
pub mod stats;
#[cfg(feature = "stream")]
pub mod stream;
pub mod task;
mod tasks;
pub mod time;
mod timers;
mod trace;
mod unwind;
mod waiters;

/// A counter with its name and meaning, for code that prints or exports all of them.
///
/// ```
/// use annulus::Counter;
///
/// fn print(Counter { name, value, help, .. }: Counter) {
///     println!("{value:>12} {name}: {help}");
/// }
///
/// let runtime = annulus::Runtime::new()?;
/// runtime.counters().iter().filter(|counter| counter.value > 0).for_each(print);
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_driver::Counter;
/// The counters of a runtime, and the amounts it holds now: see [`counters`].
///
/// ```
/// use annulus::{Counters, net::UnixStream};
///
/// /// Messages that each call into the kernel has moved.
/// fn batch(before: &Counters, after: &Counters, messages: u64) -> f64 {
///     messages as f64 / (after.enters - before.enters).max(1) as f64
/// }
///
/// # annulus::run(async {
/// let (mut one, mut two) = UnixStream::pair()?;
/// let before = annulus::counters().expect("in a runtime");
/// for _ in 0..100 {
///     one.send("a").await?;
/// }
/// two.recv_exact(100).await?;
/// let after = annulus::counters().expect("in a runtime");
/// assert!(batch(&before, &after, 100) > 1.0);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(inline)]
pub use annulus_driver::Counters;
/// Runs an `async fn main` by [`run`].
///
/// ```
/// #[annulus::main]
/// async fn main() -> std::io::Result<()> {
///     annulus::time::sleep(std::time::Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// The function may have any name, visibility and return type, and takes no parameters. Settings of the runtime are those of
/// [`Runtime::builder`], which this does not replace. The crate must be known by its name, `annulus`.
///
/// ```compile_fail
/// #[annulus::main]
/// fn main() {} // It is not `async`.
/// ```
///
/// ```compile_fail
/// #[annulus::main(threads = 2)] // It has no settings.
/// async fn main() {}
/// ```
///
/// ```compile_fail
/// #[annulus::main]
/// async fn main(arguments: Vec<String>) {} // Nothing passes them.
/// ```
#[cfg(feature = "macros")]
#[doc(inline)]
pub use annulus_macros::main;
/// Makes a test of an `async fn`, which [`run`] runs: on io_uring, or on epoll if
/// that is blocked. The variable `ANNULUS_DRIVER` demands one of both.
///
/// ```
/// #[annulus::test]
/// async fn bytes_come_back() -> std::io::Result<()> {
///     let (mut one, mut two) = annulus::net::UnixStream::pair()?;
///     one.send("bytes").await?;
///     assert_eq!(&*two.recv_exact(5).await?, b"bytes");
///     Ok(())
/// }
/// ```
///
/// Other attributes of tests, such as `#[ignore]` and `#[should_panic]`, stand beside it.
///
/// ```compile_fail
/// #[annulus::test]
/// fn test() {} // It is not `async`.
/// ```
#[cfg(feature = "macros")]
#[doc(inline)]
pub use annulus_macros::test;
#[doc(inline)]
/// The features of the kernel's io_uring: see [`DriverInfo`].
///
/// ```
/// use annulus::{Feature, Features, Runtime};
///
/// /// The newest kernel whose features are all there, as major and minor version.
/// fn level(features: &Features) -> Option<(u16, u16)> {
///     let missing = features.iter().filter(|feature| !feature.present).map(|feature| feature.since);
///     let first_missing = missing.min().unwrap_or((u16::MAX, 0));
///     let present = features.iter().map(|Feature { since, .. }| *since);
///     present.filter(|since| *since < first_missing).max()
/// }
///
/// println!("{:?}", level(&Runtime::new()?.driver().features));
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_ring::{Feature, Features};
pub use base::driver_kind::DriverKind;
pub use bytes::chunk::{Chunk, IntoChunk};
pub use bytes::lease::Lease;
pub use bytes::shared::SharedBytes;
pub use memory::MemoryLimit;
pub use name::UnknownName;
pub use nop::{Nop, nop};
pub use runtime::{
    Builder, DriverChoice, DriverInfo, Guest, GuestNext, Handle, Runtime, counters, handle, run,
    stats,
};
pub use shards::shards;
pub use task::{
    AbortHandle, JoinError, JoinHandle, JoinSet, consume_budget, spawn, spawn_blocking, yield_now,
};
/// A macro of tokio, which needs no runtime of tokio:
#[cfg(feature = "macros")]
pub use tokio::{join, try_join};

/// What `select!` expands to. Not part of the interface.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod macro_support {
    pub use crate::runtime::select::first_branch;
    pub use tokio;
}

/// Compiles the code of the crate's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
