//! The runtime's clock for libraries that use `std::time::Instant`, and a timer for libraries that
//! reset it often.

use crate::OnThread;
use annulus::time::{Sleep, sleep_until};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
#[cfg(feature = "tower")]
use std::time::Duration;
use std::time::Instant;

/// Limits of 36,500 days or more count as no limit: hyper adds a limit to a `std::time::Instant`,
/// which panics on overflow.
#[cfg(feature = "tower")]
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The time when the value was created, on the standard clock and on the runtime's clock. Under a
/// simulated kernel, instants derived from it follow virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    standard: Instant,
    runtime: annulus::time::Instant,
}

impl Origin {
    #[expect(
        clippy::disallowed_methods,
        reason = "the library uses instants of the standard clock, which is read only here"
    )]
    pub(crate) fn new() -> Self {
        Self { standard: Instant::now(), runtime: annulus::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.standard + self.runtime.elapsed()
    }

    /// Converts the library's instant to the runtime's. Instants before the origin become the
    /// origin.
    pub(crate) fn to_runtime(self, moment: Instant) -> annulus::time::Instant {
        self.runtime + moment.saturating_duration_since(self.standard)
    }
}

/// A timer that a library resets for nearly every message, mostly to a later time. Resetting it to
/// a later deadline does not touch the runtime's timer. When the runtime's timer fires too early,
/// `poll` resets it to the current deadline.
#[derive(Debug)]
pub(crate) struct Timer {
    deadline: annulus::time::Instant,
    /// Created by the first poll. It fires no later than `deadline`.
    sleep: Option<OnThread<Sleep>>,
}

impl Timer {
    pub(crate) fn new(deadline: annulus::time::Instant) -> Self {
        Self { deadline, sleep: None }
    }

    pub(crate) fn reset(&mut self, deadline: annulus::time::Instant) {
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
