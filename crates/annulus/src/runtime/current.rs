//! The runtime that this thread is running.

use crate::base::budget;
use crate::runtime::core::Core;
use crate::tasks::{Id, owner};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// Holds a runtime as the thread's current one until dropped.
pub(crate) struct Entered(());

/// Makes `core` the thread's current runtime.
///
/// # Errors
/// If another one is running on this thread: runtimes do not nest. If the thread is ending, and its thread-local data is gone.
pub(crate) fn enter(core: &Rc<Core>) -> io::Result<Entered> {
    let entered = CURRENT.try_with(|current| {
        let mut current = current.borrow_mut();
        // In a forked child the parent's runtime is still noted here, but is not running.
        if current.as_ref().is_some_and(|running| running.in_owner_process()) {
            return Err(io::Error::other(
                "a runtime is running on this thread already; spawn a task on it, or use another thread",
            ));
        }
        if let Some(parents) = current.replace(core.clone()) {
            std::mem::forget(parents);
        }
        core.set_running(true);
        owner::enter(&core.remote, &core.run_queue);
        Ok(Entered(()))
    });
    entered.unwrap_or_else(|_ending| {
        Err(io::Error::other(
            "this thread is ending, and its thread-local data is gone: no runtime runs in a destructor of such data; use another thread",
        ))
    })
}

impl Drop for Entered {
    fn drop(&mut self) {
        owner::leave();
        budget::end();
        if let Ok(Some(core)) = CURRENT.try_with(RefCell::take) {
            core.set_running(false);
        }
    }
}

/// Runs `f` on the thread's current runtime; `None` if there is none.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Rc<Core>) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(f)).ok().flatten()
}

/// The id of the task that calls it.
///
/// # Panics
/// Outside a task: the future that the runtime was given is none.
#[track_caller]
pub fn id() -> Id {
    try_id().expect(
        "task::id was called outside a task; the future of annulus::run is none: spawn one, or call try_id",
    )
}

/// As [`id`]; `None` outside a task.
pub fn try_id() -> Option<Id> {
    with(|core| core.run_queue.running()).flatten()
}

/// The thread's current runtime.
///
/// # Errors
/// Outside a runtime.
pub(crate) fn get() -> io::Result<Rc<Core>> {
    with(Rc::clone).ok_or_else(|| {
        io::Error::other("no runtime is running on this thread; call this inside annulus::run, or in a program of tokio inside \
             annulus_tokio::run or after annulus_tokio::enter")
    })
}
