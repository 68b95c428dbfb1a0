//! A timer that is set anew often.

use crate::OnThread;
use annulus::time::{Instant, Sleep, sleep_until};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A timer that a library sets anew with nearly every message, mostly to a later time: then the runtime's timer stays as it is, and is set
/// for the rest of the time when it fires.
#[derive(Debug)]
pub(crate) struct Timer {
    deadline: Instant,
    /// Made with the first poll. Its deadline is never later.
    sleep: Option<OnThread<Sleep>>,
}

impl Timer {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { deadline, sleep: None }
    }

    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if self.sleep.is_some() && deadline < self.sleep().deadline() {
            self.sleep().reset(deadline);
        }
    }

    fn sleep(&mut self) -> &mut Sleep {
        let deadline = self.deadline;
        let sleep = self.sleep.get_or_insert_with(|| OnThread::new(sleep_until(deadline)));
        sleep.try_mut().unwrap_or_else(|wrong| panic!("{wrong}"))
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let sleep = self.sleep();
        while Pin::new(&mut *sleep).poll(cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.reset(deadline);
        }
        Poll::Pending
    }
}
