//! A token that asks tasks to end; and what to use for channels and locks.
//!
//! Between tasks of one runtime, use `tokio::sync`: its feature `sync` needs no runtime of tokio, and all of it works here, with values that
//! are not `Send` as well. So do `futures::channel` and `async-channel`. Between the threads of [`Shards`](crate::shards::Shards) there is
//! [`shards::channel`](crate::shards::channel) too, which takes from the budget below by itself.
//!
//! Futures of other crates do not take from the [budget](crate::Builder::task_budget) of a task. A loop over a channel that never runs empty
//! awaits through [`task::cooperative`](crate::task::cooperative), so that the other tasks have their turn:
//!
//! ```
//! # annulus::run(async {
//! use annulus::task::cooperative;
//! use tokio::sync::mpsc;
//!
//! let (sender, mut receiver) = mpsc::channel(64);
//! annulus::spawn(async move { sender.send("a value").await });
//! let mut seen = 0;
//! while let Some(value) = cooperative(receiver.recv()).await {
//!     assert_eq!(value, "a value");
//!     seen += 1;
//! }
//! assert_eq!(seen, 1);
//! # });
//! ```

mod cancellation;

pub use cancellation::{
    CancellationToken, Cancelled, CancelledOwned, DropGuard, RunUntilCancelled,
};
