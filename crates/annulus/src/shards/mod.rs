//! One runtime a core: a thread and a ring each, and nothing shared but what is sent.
//!
//! ```no_run
//! use annulus::net::{ListenOptions, TcpStream};
//! use annulus::shards::{Doors, Shards, Spread};
//!
//! fn main() -> std::io::Result<()> {
//!     let shards = Shards::new(4);
//!     let doors = Doors::bind("127.0.0.1:7000", &ListenOptions::new(), 4, Spread::Fewest)?;
//!     shards.run(async |shard| {
//!         let mut incoming = doors.open(&shard)?;
//!         while let Some((stream, _peer)) = incoming.accept().await? {
//!             annulus::spawn(echo(stream));
//!         }
//!         std::io::Result::Ok(())
//!     })?;
//!     Ok(())
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
//! # What crosses, and what it costs
//!
//! A stream, its tasks and its leases stay on their shard, and a request that stays there too touches no other: no lock, no
//! shared line of memory, no call. [`Counters`](crate::Counters) show it: `remote_wakes` and `wakeups` do not change.
//!
//! | to send | use |
//! |---|---|
//! | connections, as they are accepted | [`Doors`] |
//! | a connection that is in use | [`Shard::move_stream`] |
//! | work | [`Shard::spawn_on`], [`Handle::spawn_with`](crate::Handle::spawn_with) |
//! | values | [`channel`] |
//! | received bytes, a whole lease uncopied | [`Lease::into_shared`](crate::Lease::into_shared) |
//!
//! Whoever sends makes a system call only where the other shard's loop sleeps; one that is awake looks around with its next
//! turn.
//!
//! # How they end
//!
//! Each shard ends when its main returns. The first error, panic or failed set-up ends them all, and is what
//! [`run`](Shards::run) returns: the others' mains are dropped where they wait, and their runtimes end in order. A main that
//! computes without ever waiting cannot be stopped.
//!
//! In the simulator there are no other threads, and so no shards: a runtime on a simulated kernel is refused here.

mod channel;
mod error;
mod listener;
mod pinning;
mod shard;
mod start_barrier;
mod threads;

pub use channel::{Closed, Receiver, Sender, Sending, TrySendError, channel};
pub use error::{Cause, ShardError};
pub use listener::{Doors, Incoming, Spread};
pub use pinning::Pinning;
pub use shard::Shard;
pub use threads::Shards;

use std::future::Future;

/// Runs `main` on `count` threads, each with a runtime of default settings, pinned to a CPU each. See [`Shards`] for
/// settings.
///
/// ```
/// let squares = annulus::shards(3, async |shard| std::io::Result::Ok(shard.index() * shard.index()));
/// assert_eq!(squares.unwrap(), [0, 1, 4]);
/// ```
///
/// # Errors
/// As [`Shards::run`].
pub fn shards<T, E, F, Fut>(count: usize, main: F) -> Result<Vec<T>, ShardError<E>>
where
    F: Fn(Shard) -> Fut + Sync,
    Fut: Future<Output = Result<T, E>>,
    T: Send,
    E: Send,
{
    Shards::new(count).run(main)
}
