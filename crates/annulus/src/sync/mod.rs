//! Channels, locks and notifications between the tasks of one runtime.
//!
//! All but the [`CancellationToken`] stays on one thread: there is no lock and no atomic operation in it, values need not be
//! `Send`, and the tasks that wait have their turns in the order of arrival. Between threads, use [`shards::channel`](crate::shards::channel).
//!
//! | | for |
//! |---|---|
//! | [`mpsc`] | many senders, one receiver; bounded or not |
//! | [`oneshot`] | one value |
//! | [`Mutex`] | a value that one task uses across an `await` |
//! | [`Semaphore`] | so many at once |
//! | [`Notify`] | something happened |
//! | [`CancellationToken`] | tasks are to end |
//!
//! The names are those of `tokio::sync`, with the same meaning. All of `tokio::sync` (its feature `sync` needs no runtime of tokio), such as
//! `broadcast`, `watch`, `RwLock` and `OnceCell`, and of `futures::channel` and `async-channel`, works here too, with values that are not `Send` as
//! well; what it does not do is take from the [budget](crate::Builder::task_budget) of a task. A loop over it that never runs empty awaits
//! through [`task::cooperative`](crate::task::cooperative).
//!
//! Every future here is cancel-safe: dropped before it is ready, it has taken nothing. One that is forgotten (`mem::forget`)
//! delays those that came after it by a turn of the loop or two, and stops none; only an `acquire_many` that has found too few permits
//! stops them until there are as many.

mod cancellation;
pub mod mpsc;
mod mutex;
mod notify;
pub mod oneshot;
mod permits;
mod semaphore;

pub use cancellation::{
    CancellationToken, Cancelled, CancelledOwned, DropGuard, RunUntilCancelled,
};
pub use mutex::{Locking, Mutex, MutexGuard};
pub use notify::{Notified, Notify};
pub use semaphore::{Acquire, AcquireError, Permit, Semaphore, TryAcquireError};
