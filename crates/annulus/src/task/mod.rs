//! Tasks: futures that run side by side on the runtime's thread.

mod body;
mod join;
mod ready;
mod root;

pub(crate) use body::words_of;
pub use join::{JoinError, JoinHandle};
pub(crate) use ready::Ready;
pub(crate) use root::RootWaker;

use crate::current;
use crate::remote::Remote;
use body::Body;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Spawns a task on the current runtime. It starts with the next turn; dropping the handle detaches it.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    spawn_born(future, Location::caller())
}

/// As [`spawn`], on behalf of who called from there.
pub(crate) fn spawn_born<F>(future: F, born: &'static Location<'static>) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let core = current::get()
        .expect("annulus::spawn was called outside a runtime; call it inside annulus::run");
    let builder = async_task::Builder::new().metadata(core.remote.clone());
    let (runnable, task) = builder.spawn_local(|_| Body::new(future, born), schedule);
    runnable.schedule();
    JoinHandle::new(task)
}

/// Spawns a task from another thread.
#[track_caller]
pub(crate) fn spawn_remotely<F>(remote: &Arc<Remote>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let born = Location::caller();
    let builder = async_task::Builder::new().metadata(remote.clone());
    let (runnable, task) = builder.spawn(|_| Body::new(future, born), schedule);
    runnable.schedule();
    JoinHandle::new(task)
}

/// A task that is to run. It carries its runtime's outside, so that [`schedule`] needs nothing of its own: for a function
/// that captures something, async-task counts references twice more at every wake.
pub(crate) type Runnable = async_task::Runnable<Arc<Remote>>;

/// Where a woken task goes: the ready queue at home, the inbox from elsewhere.
fn schedule(task: Runnable) {
    let mut task = Some(task);
    current::with(|core| {
        let at_home =
            |task: &mut Runnable| Arc::ptr_eq(&core.remote, task.metadata()) && core.at_home();
        if let Some(task) = task.take_if(at_home) {
            core.ready.push(task);
        }
    });
    if let Some(task) = task {
        task.metadata().clone().push(task);
    }
}

/// Lets the other ready tasks run first.
pub async fn yield_now() {
    struct Yield(bool);

    impl Future for Yield {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    Yield(false).await;
}
