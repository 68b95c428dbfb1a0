//! Counts open connections, including upgraded ones.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

#[derive(Default)]
pub(super) struct OpenCount {
    count: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl OpenCount {
    /// Counts a connection as open until the returned guard is dropped.
    pub(super) fn add(self: &Rc<Self>) -> Open {
        self.count.update(|count| count + 1);
        Open(self.clone())
    }

    /// Returns true if fewer than `limit` connections are open. Otherwise the task is woken when
    /// the next one ends.
    pub(super) fn is_below(&self, limit: usize, cx: &Context<'_>) -> bool {
        let is_below = self.count.get() < limit;
        if !is_below {
            self.waker.replace(Some(cx.waker().clone()));
        }
        is_below
    }
}

pub(super) struct Open(Rc<OpenCount>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count.update(|count| count - 1);
        let waker = self.0.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
