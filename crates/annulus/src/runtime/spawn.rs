//! Spawning on the runtime of this thread.

use crate::runtime::current;
use crate::tasks::JoinHandle;
use std::future::Future;
use std::panic::Location;

/// Spawns a task on the current runtime. It starts with the next turn; dropping the handle detaches it. If the runtime is
/// ending, the future is dropped at once, and the handle gives an error that [is a cancellation](crate::JoinError::is_cancelled).
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    spawn_at(future, Location::caller())
}

/// As [`spawn`], called from this location.
#[track_caller]
pub(crate) fn spawn_at<F>(
    future: F,
    spawned_at: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let Ok(core) = current::get() else {
        panic!("annulus::spawn was called outside a runtime; call it inside annulus::run");
    };
    core.request_turn();
    JoinHandle::new(core.run_queue.spawn(&core.remote, future, spawned_at))
}
