//! Whether this thread owns a task, and the run queue of this thread.

use super::RunQueue;
use super::raw::TaskRef;
use crate::tasks::remote::Remote;
use std::cell::{Cell, RefCell};
use std::ptr::{from_ref, null};
use std::rc::Rc;

thread_local! {
    /// The inbox of the runtime that this thread runs. It is compared but never dereferenced. It is
    /// separate from the queue because reading a thread-local without a destructor is a plain load.
    static OWNED_REMOTE: Cell<*const Remote> = const { Cell::new(null()) };
    static RUN_QUEUE: RefCell<Option<Rc<RunQueue>>> = const { RefCell::new(None) };
}

/// Makes this thread the owner of a runtime's tasks, until [`clear_owner_thread`]. On a thread that
/// is ending this may have no effect; wakes from this thread then use the inbox.
pub(crate) fn set_owner_thread(remote: &Remote, run_queue: &Rc<RunQueue>) {
    if RUN_QUEUE.try_with(|slot| slot.replace(Some(run_queue.clone()))).is_ok() {
        OWNED_REMOTE.set(from_ref(remote));
    }
}

/// Ends the ownership. From now on wakes from this thread use the inbox.
pub(crate) fn clear_owner_thread() {
    OWNED_REMOTE.set(null());
    _ = RUN_QUEUE.try_with(RefCell::take);
}

/// Returns true if the runtime with this inbox runs on this thread.
#[inline]
pub(crate) fn is_owner(remote: &Remote) -> bool {
    OWNED_REMOTE.get() == from_ref(remote)
}

/// Queues a task of the runtime that this thread runs.
#[inline]
pub(crate) fn push(task: TaskRef) {
    RUN_QUEUE.with(|queue| {
        let queue = queue.borrow();
        queue.as_ref().expect("the owner thread has no run queue").push(task);
    });
}
