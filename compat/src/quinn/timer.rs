//! A timer of a connection.

use crate::OnThread;
use crate::clock::Origin;
use annulus::time::{Sleep, sleep_until};
use quinn::AsyncTimer;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// A timer that quinn sets anew with nearly every packet, mostly to a later time: then the runtime's timer stays as it is, and is set
/// for the rest of the time when it fires.
pub(super) struct Timer {
    origin: Origin,
    deadline: annulus::time::Instant,
    /// Made with the first poll. Its deadline is never later.
    sleep: Option<OnThread<Sleep>>,
}

impl Timer {
    pub(super) fn new(origin: Origin, deadline: Instant) -> Self {
        Self { origin, deadline: origin.ours(deadline), sleep: None }
    }

    fn sleep(&mut self) -> &mut Sleep {
        let deadline = self.deadline;
        let sleep = self.sleep.get_or_insert_with(|| OnThread::new(sleep_until(deadline)));
        sleep.try_mut().unwrap_or_else(|wrong| panic!("{wrong}"))
    }
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        let deadline = self.origin.ours(deadline);
        self.deadline = deadline;
        if self.sleep.is_some() && deadline < self.sleep().deadline() {
            self.sleep().reset(deadline);
        }
    }

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

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timer({:?})", self.deadline)
    }
}
