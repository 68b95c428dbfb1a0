//! Tasks: futures that run concurrently on the runtime's thread.
//!
//! | to | use |
//! |---|---|
//! | run a future alongside this one | [`spawn`] |
//! | take the results of many tasks as they finish | [`JoinSet`] |
//! | end a task | [`JoinHandle::abort`], [`AbortHandle`]; or ask it to end with a `CancellationToken` of `tokio-util` |
//! | make a blocking call | [`spawn_blocking`] |
//! | run two futures in one task, without spawning | `join!` and `select!` of the crates `futures` and `tokio` |
//! | identify a task | [`id`], [`JoinHandle::id`] |
//! | let other tasks run | [`yield_now`], [`consume_budget`]; [`cooperative`] for futures of other crates |
//!
//! The `select!` of `futures` takes fused futures: `pin!(future.fuse())`, and
//! `stream.select_next_some()` of a stream (feature `stream`). The `select!` of `tokio` takes any
//! future, and works without tokio's runtime.
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
pub use crate::runtime::spawn::{spawn, spawn_blocking};
pub use crate::tasks::{
    AbortHandle, Cooperative, Id, JoinError, JoinHandle, consume_budget, cooperative, yield_now,
};
