//! The event loop that a runtime is the guest of.

use crate::unwind::contained;
use std::cell::RefCell;
use std::task::Waker;

/// The event loop that takes the turns of a guest.
#[derive(Default)]
pub(crate) struct Host(RefCell<Option<Waker>>);

impl Host {
    /// Notes the waker that notifies the host of a use of the runtime.
    pub(super) fn set(&self, waker: &Waker) {
        let is_same = self.0.borrow().as_ref().is_some_and(|host| host.will_wake(waker));
        if !is_same {
            let previous = self.0.replace(Some(waker.clone()));
            drop(previous);
        }
    }

    /// Notifies the host that a turn has something to do.
    pub(crate) fn wake(&self) {
        let host = self.0.borrow().clone();
        if let Some(waker) = host {
            contained(|| waker.wake());
        }
    }
}
