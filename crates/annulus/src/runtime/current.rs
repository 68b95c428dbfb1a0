//! The runtime that this thread is running.

use crate::runtime::core::Core;
use crate::tasks::{Id, budget, run_queue};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
    /// Whether the current runtime was only entered, so that its loop does not run.
    static IS_ENTERED_ONLY: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a runtime current on this thread until it is dropped.
pub(crate) struct CurrentGuard {
    /// The runtime that the thread had entered before.
    entered: Option<Rc<Core>>,
}

/// Makes `core` the thread's current runtime.
///
/// # Errors
/// If another runtime is running on this thread, because runtimes do not nest; or if the thread is
/// ending and its thread-local data is gone.
pub(crate) fn set_current(core: &Rc<Core>) -> io::Result<CurrentGuard> {
    let current_guard = CURRENT.try_with(|current| {
        let entered = replace(&mut current.borrow_mut(), core)?;
        IS_ENTERED_ONLY.set(false);
        core.set_running(true);
        run_queue::set_owner_thread(&core.remote, &core.run_queue);
        Ok(CurrentGuard { entered })
    });
    current_guard.unwrap_or_else(|_ending| Err(thread_ends()))
}

/// Replaces the current runtime. Returns the one that the thread had entered before.
///
/// # Errors
/// If a runtime is running on this thread.
fn replace(current: &mut Option<Rc<Core>>, core: &Rc<Core>) -> io::Result<Option<Rc<Core>>> {
    // In a forked child the parent's runtime is still stored here, but is not running.
    let is_parents = current.as_ref().is_some_and(|core| !core.in_owner_process());
    if current.is_some() && !is_parents && !IS_ENTERED_ONLY.get() {
        return Err(io::Error::other(
            "a runtime is running on this thread already; spawn a task on it, or use another thread",
        ));
    }
    let before = current.replace(core.clone());
    if is_parents {
        std::mem::forget(before);
        return Ok(None);
    }
    Ok(before)
}

fn thread_ends() -> io::Error {
    io::Error::other(
        "this thread is ending and its thread-local data is gone, so no runtime can run here; use another thread",
    )
}

impl Drop for CurrentGuard {
    fn drop(&mut self) {
        run_queue::clear_owner_thread();
        budget::end();
        let entered = self.entered.take();
        let is_entered = entered.is_some();
        if let Ok(Some(core)) = CURRENT.try_with(|current| current.replace(entered)) {
            core.set_running(false);
            IS_ENTERED_ONLY.set(is_entered);
        }
    }
}

/// The guard of [`Runtime::enter`](crate::Runtime::enter): the runtime is this thread's current
/// runtime until the guard is dropped. Guards must be dropped in the reverse order of their
/// creation.
#[must_use = "the runtime is current only until the guard is dropped"]
pub struct EnterGuard {
    core: Rc<Core>,
    entered: Option<Rc<Core>>,
}

/// Makes `core` the thread's current runtime, without running its loop.
///
/// # Errors
/// If a runtime is running on this thread; or if the thread is ending and its thread-local data is
/// gone.
pub(crate) fn enter(core: &Rc<Core>) -> io::Result<EnterGuard> {
    let guard = CURRENT.try_with(|current| {
        let entered = replace(&mut current.borrow_mut(), core)?;
        IS_ENTERED_ONLY.set(true);
        Ok(EnterGuard { core: core.clone(), entered })
    });
    guard.unwrap_or_else(|_ending| Err(thread_ends()))
}

impl Drop for EnterGuard {
    /// # Panics
    /// If a guard that was created later still exists.
    fn drop(&mut self) {
        let is_this = |current: &RefCell<Option<Rc<Core>>>| {
            current.borrow().as_ref().is_some_and(|core| Rc::ptr_eq(core, &self.core))
        };
        // In a destructor of thread-local data, the thread may no longer have a current runtime.
        let Ok(is_current) = CURRENT.try_with(is_this) else { return };
        if !is_current || !IS_ENTERED_ONLY.get() {
            if self.core.in_owner_process() && !std::thread::panicking() {
                panic!(
                    "the guards of Runtime::enter were not dropped in the reverse order of their creation"
                );
            }
            return;
        }
        let entered = self.entered.take();
        IS_ENTERED_ONLY.set(entered.is_some());
        // The runtime is dropped once nothing is borrowed.
        drop(CURRENT.try_with(|current| current.replace(entered)));
    }
}

impl fmt::Debug for EnterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnterGuard")
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

/// Returns the thread's current runtime for a call that returns no error.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub(crate) fn expect(call: &str) -> Rc<Core> {
    match get() {
        Ok(core) => core,
        Err(error) => panic!("{call}: {error}"),
    }
}
