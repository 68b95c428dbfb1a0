//! A countdown latch.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

/// Opens when the count has reached zero or something has failed.
#[derive(Default)]
pub(crate) struct Latch {
    left: Cell<usize>,
    failure: RefCell<Option<io::Error>>,
    waiting: RefCell<Option<Waker>>,
}

impl Latch {
    pub(crate) fn new(count: usize) -> Self {
        Self { left: Cell::new(count), ..Self::default() }
    }

    pub(crate) fn count_down(&self) {
        self.left
            .set(self.left.get().checked_sub(1).expect("more parts arrived than were expected"));
        self.wake();
    }

    /// Opens the latch at once, with an error. The first error is kept.
    pub(crate) fn fail(&self, error: io::Error) {
        self.failure.borrow_mut().get_or_insert(error);
        self.wake();
    }

    pub(crate) async fn wait(&self) -> io::Result<()> {
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
