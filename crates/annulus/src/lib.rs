//! An asynchronous io_uring runtime for network servers on Linux: tasks, TCP, UDP, Unix sockets,
//! files and timers.
//!
//! It is used like tokio's current-thread runtime: [`run`] a future, [`spawn`] tasks, await I/O.
//! Futures need not be `Send`. [`shards`](mod@shards) starts one runtime per core. If the kernel or
//! a sandbox denies io_uring, the same program runs on epoll.
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
//! # What most programs use
//!
//! | to | use |
//! |---|---|
//! | accept connections | [`net::TcpListener`] |
//! | receive and send on one | [`net::TcpStream`]; [`net::UnixStream`] on one machine |
//! | hold received bytes | [`Lease`], which [`recv`](net::TcpStream::recv) returns |
//! | exchange datagrams | [`net::UdpSocket`] |
//! | read and write files | [`fs::File`] |
//! | do several things at once | [`spawn`], [`task::JoinHandle`], [`task::JoinSet`] |
//! | set a time limit, or sleep | [`time::timeout`], [`time::sleep`] |
//! | write code for any stream | [`io::AsyncRecv`], [`io::AsyncSend`] |
//! | change a setting | [`Builder`], from [`Runtime::builder`] |
//! | reach the runtime from another thread | [`Handle`] |
//!
//! The [`guide`] leads from first steps to tuning; [coming from tokio](guide::coming_from_tokio)
//! has a table of equivalents.
//!
//! # The differences from other runtimes
//!
//! - **Receiving takes no buffer.** [`recv`](net::TcpStream::recv) returns a [`Lease`] on one of
//!   the runtime's buffers, which the kernel has filled. Dropping the lease returns the buffer. An
//!   idle connection holds no buffer.
//! - **Sending takes the bytes**: a lease, or any owned buffer. They are sent at the end of the
//!   turn in one operation. Only small chunks are copied, to send them together.
//! - **Operations belong to the socket, not to the future.** A `recv` or `accept` that loses a
//!   `select!` can be dropped: the next call gets the bytes or the connection. Bytes that a `send`
//!   has queued, usually at its first poll, are sent even if it is dropped.
//!
//! # What dropping a future does
//!
//! | future | dropped before it is ready |
//! |---|---|
//! | `accept`, `recv` | nothing is lost: the next call returns the connection or the bytes |
//! | `fill_buf`, `fill_at_least`, `recv_exact`, `recv_until`, `read_frame`, `read_line` | nothing is lost: the next call shows or returns the bytes received so far |
//! | `next` of tokio-util's `Framed` | nothing is lost: the next call returns the message |
//! | `read_exact`, `read_until`, `read_to_end`, `write_all` | a part was read or queued |
//! | `connect` | the attempt is cancelled, and its socket is closed |
//! | `lookup_host` | a look-up that has started continues, and its answer is dropped |
//! | datagrams: `recv…`, `peek…` | nothing is lost: the next call returns or shows the datagram |
//! | datagrams: `send…` | nothing is sent |
//! | `readable`, `writable`, `ready`, `AsyncFd::async_io` | nothing is lost: a reported readiness is kept |
//! | `send` | a chunk that has been queued, usually by the first poll, is still sent; otherwise nothing is sent |
//! | `AsyncSend::send`, in generic code | a stream of this crate sends all of the chunk or nothing; other types may have sent a part |
//! | `write`, `write_vectored` | nothing was sent or queued |
//! | `TcpStream::close`, `into_parts`, `into_std` | the stream closes like a dropped one |
//! | `drain`, `shutdown` | queued bytes are still sent; once polled, `shutdown` completes |
//! | `uring::submit` | the operation is cancelled unless it has taken effect; its memory is kept until then |
//! | reads and writes of files, syncs | once started, it completes; its memory is kept until then |
//! | calls of a `FileStream` | nothing is lost: the next call shows the bytes that were read, and queued bytes are written, even when the runtime ends |
//! | `io::copy`, `copy_at_most`, `copy_bidirectional` | a part was copied; between streams of this crate nothing is lost, and a second copy continues from there. For files, see [`io::copy`](io::copy()) |
//! | opening a file | the file may still be created or truncated; its descriptor is closed |
//! | `FileCache::open` | the cache is unchanged, except that a shortage of descriptors may have evicted one of its files |
//! | `sleep`, `timeout` | the timer is removed |
//! | `Interval::tick` | no tick is lost |
//! | `JoinHandle` | the task continues, detached |
//! | `spawn_blocking` | the call continues, detached; if it is aborted before it has begun, it is not made |
//! | `JoinSet` | its tasks are aborted; dropping `join_next` loses nothing |
//! | `Signals::recv` | nothing is lost |
//! | `Child::wait`, `kill` | nothing is lost; once polled, `kill` has sent the signal |
//! | `Command::status`, `output`, `Child::wait_with_output` | the child is dropped: it keeps running, or is killed if `kill_on_drop` is set |
//! | `Handle::stats`, `Handle::tasks` | the answer is discarded |
//!
//! # Threads
//!
//! A runtime and its streams, tasks and leases stay on one thread. [`Handle`], [`SharedBytes`] and
//! [`shards::channel`] cross threads; [`net::TcpStream::into_parts`] moves a connection to another
//! thread.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod bytes;
mod driver_kind;
mod errors;
mod file_policy;
mod fork_guard;
pub mod fs;
#[cfg(feature = "internals")]
mod fuzzing;
pub mod guide;
pub mod io;
#[cfg(feature = "macros")]
mod main_macro;
mod memory;
mod name;
pub mod net;
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
mod tasks;
pub mod time;
mod timers;
mod trace;
mod unwind;
pub mod uring;
mod waiters;

/// Runs an `async fn main` with [`run`].
///
/// ```
/// #[annulus::main]
/// async fn main() -> std::io::Result<()> {
///     annulus::time::sleep(std::time::Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// The function may have any name, visibility and return type, and takes no parameters. The crate
/// must be imported under its own name, `annulus`.
///
/// Arguments are runtime settings, each with the name of a method of [`Builder`]. A value
/// with a comma needs parentheses:
///
/// ```
/// use annulus::DriverChoice;
///
/// #[annulus::main(driver = DriverChoice::Epoll, task_budget = 64)]
/// async fn main() -> std::io::Result<()> {
///     let stats = annulus::handle()?.stats().await?;
///     assert_eq!(stats.driver.to_string(), "epoll");
///     Ok(())
/// }
/// ```
///
/// # Panics
/// For the same reasons as [`run`].
///
/// ```compile_fail
/// #[annulus::main]
/// fn main() {} // It is not `async`.
/// ```
///
/// ```compile_fail
/// #[annulus::main(threads = 2)] // No method of `Builder` has this name.
/// async fn main() {}
/// ```
///
/// ```compile_fail
/// #[annulus::main]
/// async fn main(arguments: Vec<String>) {} // Nothing passes arguments to it.
/// ```
#[cfg(feature = "macros")]
#[doc(inline)]
pub use annulus_macros::main;
/// Turns an `async fn` into a test that [`run`] runs: on io_uring, or on epoll if io_uring is
/// blocked. The environment variable `ANNULUS_DRIVER` selects one of the two.
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
/// It can be combined with other test attributes, such as `#[ignore]` and `#[should_panic]`. It
/// takes the same arguments as [`main`](macro@main).
///
/// With `start_paused = true` (feature `sim`), the test runs in virtual time: whenever all tasks
/// wait, time moves to the next timer. It runs on a [simulated kernel](sim) without faults, so it
/// sees neither the machine's network nor its files, and cannot start processes. [`sim::run`] also
/// injects faults.
///
/// ```
/// #[annulus::test(start_paused = true)]
/// async fn a_day_passes() {
///     let start = annulus::time::Instant::now();
///     annulus::time::sleep(std::time::Duration::from_secs(86_400)).await; // Takes no real time.
///     assert!(start.elapsed().as_secs() >= 86_400);
/// }
/// ```
///
/// ```compile_fail
/// #[annulus::test]
/// fn test() {} // It is not `async`.
/// ```
#[cfg(feature = "macros")]
#[doc(inline)]
pub use annulus_macros::test;
/// The features of the kernel's io_uring: see [`DriverInfo`].
///
/// ```
/// use annulus::{Feature, Features, Runtime};
///
/// /// Returns the newest kernel version (major, minor) whose features are all present.
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

pub use bytes::chunk::{Chunk, IntoChunk};
pub use bytes::lease::Lease;
pub use bytes::shared::SharedBytes;
pub use driver_kind::DriverKind;
pub use memory::MemoryLimit;
pub use name::UnknownName;
pub use runtime::spawn::spawn;
pub use runtime::{
    Builder, DriverChoice, DriverInfo, EnterGuard, Guest, GuestNext, Handle, Runtime,
    ZeroCopyReceive, counters, handle, run, stats, turns,
};
pub use shards::threads::shards;
/// A tokio macro that works without a tokio runtime:
#[cfg(feature = "macros")]
pub use tokio::{join, try_join};

pub mod task {
    //! Tasks: futures that run concurrently on the runtime's thread.
    //!
    //! | to | use |
    //! |---|---|
    //! | run a future alongside this one | [`spawn`](crate::spawn) |
    //! | take the results of many tasks as they finish | [`JoinSet`] |
    //! | end a task | [`JoinHandle::abort`], [`AbortHandle`]; or ask it to end with a `CancellationToken` of `tokio-util` |
    //! | make a blocking call | [`spawn_blocking`] |
    //! | run two futures in one task, without spawning | `join!` and `select!` of the crates `futures` and `tokio` |
    //! | identify a task | [`id`], [`JoinHandle::id`] |
    //! | give a task, and what it calls, a value without an argument | [`task_local!`](crate::task_local) |
    //! | let other tasks run | [`yield_now`], [`consume_budget`]; [`cooperative`] for futures of other crates |
    //!
    //! The `select!` of `futures` takes fused futures: `pin!(future.fuse())`, and
    //! `stream.select_next_some()` of a stream (feature `stream`). The `select!` of `tokio` takes
    //! any future, and works without tokio's runtime.
    //!
    //! ```
    //! # annulus::run(async {
    //! use futures_util::{FutureExt, select_biased};
    //! use std::pin::pin;
    //! use tokio_util::sync::CancellationToken;
    //!
    //! let stop = CancellationToken::new();
    //! let child = stop.child_token();
    //! let task = annulus::spawn(async move {
    //!     let mut stopped = pin!(child.cancelled().fuse());
    //!     let mut work = pin!(std::future::pending::<u32>().fuse());
    //!     select_biased! {
    //!         () = stopped => None,
    //!         result = work => Some(result),
    //!     }
    //! });
    //! stop.cancel();
    //! assert_eq!(task.await.unwrap(), None);
    //! # });
    //! ```

    pub use crate::runtime::current::{id, try_id};
    pub use crate::runtime::join_set::JoinSet;
    pub use crate::runtime::spawn::{spawn_blocking, spawn_local};
    pub use crate::tasks::local::{AccessError, LocalKey, TaskLocalFuture};
    pub use crate::tasks::{
        AbortHandle, Cooperative, Id, JoinError, JoinHandle, consume_budget, cooperative, yield_now,
    };
}

/// Entry points for the benchmarks and fuzz targets of this repository. Not part of the public API.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub use crate::fuzzing::datagram;
    pub use crate::runtime::nop::{Nop, nop};
}

/// Items that the expansions of `select!`, `#[main]` and `#[test]` use. Not part of the public API.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod macro_support {
    #[cfg(feature = "sim")]
    pub use crate::main_macro::run_paused;
    pub use crate::main_macro::run_with;
    pub use crate::runtime::select::first_branch;
    pub use tokio;
}

/// Compiles the code examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
