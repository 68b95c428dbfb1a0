//! Whether a thread is a task's own, and the queue there.

use super::Ready;
use super::raw::TaskRef;
use crate::runtime::remote::Remote;
use std::cell::{Cell, RefCell};
use std::ptr::{from_ref, null};
use std::rc::Rc;

thread_local! {
    /// Whose runtime is running here: compared, never followed. Apart from the queue, because without a destructor it is
    /// a plain load.
    static HOME: Cell<*const Remote> = const { Cell::new(null()) };
    static READY: RefCell<Option<Rc<Ready>>> = const { RefCell::new(None) };
}

/// Makes this thread the home of a runtime's tasks, until [`leave`]. On a thread that is ending it may have no effect:
/// then their wakes come through the inbox.
pub(crate) fn enter(remote: &Remote, ready: &Rc<Ready>) {
    if READY.try_with(|place| place.replace(Some(ready.clone()))).is_ok() {
        HOME.set(from_ref(remote));
    }
}

/// Tasks that are woken from now on come through the inbox.
pub(crate) fn leave() {
    HOME.set(null());
    _ = READY.try_with(RefCell::take);
}

/// Whether the runtime with this inbox is running on this thread: never true on a thread that did not build it.
#[inline]
pub(crate) fn is_home(remote: &Remote) -> bool {
    HOME.get() == from_ref(remote)
}

/// Queues a task of the runtime that is running here.
#[inline]
pub(super) fn push(task: TaskRef) {
    READY.with(|ready| {
        let ready = ready.borrow();
        ready.as_ref().expect("a home has a queue").push(task);
    });
}
