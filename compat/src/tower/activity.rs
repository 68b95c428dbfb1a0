//! How many requests of a connection are in flight, and since when there is none.

use annulus::time::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// Shared by a connection and its requests, which in HTTP/2 are tasks of their own.
pub(super) struct InFlight {
    count: Cell<usize>,
    idle_since: Cell<Instant>,
    /// The connection is being polled: what ends now needs not wake it.
    is_polled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl InFlight {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            count: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            is_polled: Cell::new(false),
            waker: RefCell::new(None),
        })
    }

    /// Since when no request has been in flight; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.count.get() == 0).then(|| self.idle_since.get())
    }

    pub(super) fn set_polled(&self, is_polled: bool) {
        self.is_polled.set(is_polled);
    }

    /// The task to wake when the last request has ended.
    pub(super) fn wake_at_end(&self, task: &Waker) {
        match &mut *self.waker.borrow_mut() {
            Some(waker) => waker.clone_from(task),
            none => *none = Some(task.clone()),
        }
    }

    pub(super) fn begin(self: &Rc<Self>) -> Request {
        self.count.set(self.count.get() + 1);
        Request(self.clone())
    }
}

/// A request, from its head to the end of the response.
pub(super) struct Request(Rc<InFlight>);

impl Drop for Request {
    fn drop(&mut self) {
        let all = &self.0;
        all.count.set(all.count.get() - 1);
        if all.count.get() > 0 {
            return;
        }
        all.idle_since.set(Instant::now());
        if !all.is_polled.get() {
            let waker = all.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
