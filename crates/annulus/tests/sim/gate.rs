//! A count that somebody waits for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

/// Opens when the count is down, or something has failed.
#[derive(Default)]
pub(crate) struct Gate {
    left: Cell<usize>,
    failure: RefCell<Option<io::Error>>,
    waiting: RefCell<Option<Waker>>,
}

impl Gate {
    pub(crate) fn new(count: usize) -> Self {
        Self { left: Cell::new(count), ..Self::default() }
    }

    /// One less to wait for.
    pub(crate) fn count(&self) {
        self.left.set(self.left.get().checked_sub(1).expect("nobody counts twice"));
        self.wake();
    }

    /// Opens the gate at once, with an error. The first one stands.
    pub(crate) fn fail(&self, error: io::Error) {
        self.failure.borrow_mut().get_or_insert(error);
        self.wake();
    }

    /// Waits until it is open.
    pub(crate) async fn open(&self) -> io::Result<()> {
        poll_fn(|cx| {
            if let Some(error) = self.failure.take() {
                return Poll::Ready(Err(error));
            }
            if self.left.get() == 0 {
                return Poll::Ready(Ok(()));
            }
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn wake(&self) {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }
}
