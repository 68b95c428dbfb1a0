//! The runtime that this thread is running.

use crate::runtime::core::Core;
use crate::tasks::{Id, budget, run_queue};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// Keeps a runtime current on this thread until it is dropped.
pub(crate) struct CurrentGuard(());

/// Makes `core` the thread's current runtime.
///
/// # Errors
/// If another runtime is running on this thread, because runtimes do not nest; or if the thread is
/// ending and its thread-local data is gone.
pub(crate) fn set_current(core: &Rc<Core>) -> io::Result<CurrentGuard> {
    let current_guard = CURRENT.try_with(|current| {
        let mut current = current.borrow_mut();
        // In a forked child the parent's runtime is still stored here, but is not running.
        if current.as_ref().is_some_and(|running| running.in_owner_process()) {
            return Err(io::Error::other(
                "a runtime is running on this thread already; spawn a task on it, or use another thread",
            ));
        }
        if let Some(parents) = current.replace(core.clone()) {
            std::mem::forget(parents);
        }
        core.set_running(true);
        run_queue::set_owner_thread(&core.remote, &core.run_queue);
        Ok(CurrentGuard(()))
    });
    current_guard.unwrap_or_else(|_ending| {
        Err(io::Error::other(
            "this thread is ending and its thread-local data is gone, so no runtime can run here; use another thread",
        ))
    })
}

impl Drop for CurrentGuard {
    fn drop(&mut self) {
        run_queue::clear_owner_thread();
        budget::end();
        if let Ok(Some(core)) = CURRENT.try_with(RefCell::take) {
            core.set_running(false);
        }
    }
}

/// Calls `f` with the thread's current runtime. Returns `None` outside a runtime.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Rc<Core>) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(f)).ok().flatten()
}

/// Returns the id of the calling task.
///
/// # Panics
/// Outside a task. The root future of the runtime is not a task.
#[track_caller]
pub fn id() -> Id {
    try_id().expect(
        "task::id was called outside a task, and the root future is not a task; spawn one, or call try_id",
    )
}

/// Like [`id`], but returns `None` outside a task.
pub fn try_id() -> Option<Id> {
    with(|core| core.run_queue.running()).flatten()
}

/// Returns the thread's current runtime.
///
/// # Errors
/// Outside a runtime.
pub(crate) fn get() -> io::Result<Rc<Core>> {
    with(Rc::clone).ok_or_else(|| {
        io::Error::other("no runtime is running on this thread; call this inside annulus::run, or in a tokio program inside annulus_tokio::run or after annulus_tokio::enter")
    })
}
