//! One runtime per core: each shard is a thread with its own ring, and shards share only values
//! that they send each other.
//!
//! ```no_run
//! use annulus::net::{ListenOptions, TcpStream};
//! use annulus::shards::{ShardedListener, Shards, Spread};
//!
//! fn main() -> std::io::Result<()> {
//!     let shards = Shards::new(4);
//!     let options = ListenOptions::new();
//!     let listener =
//!         ShardedListener::bind("127.0.0.1:7000", &options, 4, Spread::LeastConnections)?;
//!     shards.run(async |shard| {
//!         let mut listener = listener.open(&shard)?;
//!         while let Some((stream, _peer)) = listener.accept().await? {
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
//! # Sending between shards, and its cost
//!
//! A stream, its tasks and its leases stay on their shard. A request served there touches no other
//! shard: it takes no lock, no shared cache line and no extra system call.
//! [`Counters`](crate::stats::Counters) show this: `remote_wakes` and `wakeups` do not change.
//!
//! | to send | use |
//! |---|---|
//! | connections, as they are accepted | [`ShardedListener`] |
//! | a connection that is in use | [`Shard::move_stream`]; [`Balance`] decides which one to move, and where |
//! | work | [`Shard::spawn_on`], [`Handle::spawn_with`](crate::Handle::spawn_with) |
//! | an input at the start of a shard | [`Shards::run_with`] |
//! | values | [`channel`]; to every shard: [`channel_to_all`] |
//! | received bytes, without copying if they are a whole lease | [`Lease::into_shared`](crate::Lease::into_shared) |
//!
//! A send makes a system call only if the other shard's loop is asleep. A loop that is awake sees
//! it in its next turn.
//!
//! # How shards end
//!
//! Each shard ends when its main returns. The first error, panic or failed set-up stops all shards,
//! and [`run`](Shards::run) returns it. The other mains are dropped at their next `await`, and
//! their runtimes shut down normally. A main that never waits cannot be stopped.
//!
//! To let all shards finish their work, give each main a clone of a `CancellationToken` of
//! `tokio-util`, which does not depend on a runtime. Any thread can cancel it, and each main checks
//! it at points where it can end.
//!
//! ```
//! use annulus::net::TcpListener;
//! use annulus::shards::Shards;
//! use tokio_util::sync::CancellationToken;
//!
//! let stop = CancellationToken::new();
//! let served = Shards::new(2).run(async |shard| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let mut served = 0;
//!     if shard.index() == 1 {
//!         stop.cancel();
//!     }
//!     while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
//!         let (_stream, _peer) = accepted?;
//!         served += 1;
//!     }
//!     std::io::Result::Ok(served)
//! })?;
//! assert_eq!(served, [0, 0]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A runtime on a simulated kernel is refused, because the simulator has no other threads.

mod balance;
mod channel;
mod listener;
mod shard;
pub(crate) mod threads;

pub use balance::{Balance, Balanced};
pub use channel::{
    Receiver, SendError, Sender, SenderToAll, Sending, TryRecvError, TrySendError, channel,
    channel_to_all,
};
pub use listener::{ShardListener, ShardedListener, Spread};
pub use shard::{Pinning, Shard, cpus};
pub use threads::{Cause, ShardError, Shards};
