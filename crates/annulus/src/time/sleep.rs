//! Waiting for a point in time.

use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::budget;
use crate::timers::{Instant, TimerAction, TimerKey};
use crate::unwind::dispose_each;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits for a duration that begins with this call. Dropping the future removes the timer.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Instant::now() + duration)
}

/// Waits until an instant. Dropping the future removes the timer.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

/// A future that is ready from its deadline on.
///
/// # Panics
/// When polled outside a runtime.
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    /// The runtime and the key of the timer, while one is set.
    timer: Option<(Rc<Core>, TimerKey)>,
}

impl Sleep {
    /// Returns the time from which the future is ready.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Changes the deadline.
    pub fn reset(&mut self, deadline: Instant) {
        self.cancel();
        self.deadline = deadline;
    }

    fn cancel(&mut self) {
        let Some((core, key)) = self.timer.take() else { return };
        let action = core.borrow().ok().and_then(|mut inner| inner.state.timers.remove(key));
        // After the borrow has ended, because dropping a waker may run foreign code.
        dispose_each(action);
    }

    /// Sets the timer, unless one that wakes this task is already set.
    fn set_timer(&mut self, cx: &Context<'_>) {
        if let Some((core, key)) = &self.timer {
            let same =
                core.borrow().is_ok_and(|mut inner| match inner.state.timers.action_mut(*key) {
                    Some(TimerAction::Wake(waker)) => waker.will_wake(cx.waker()),
                    _ => false,
                });
            if same {
                return;
            }
        }
        self.cancel();
        let core = current::get().unwrap_or_else(|_| {
            panic!("a timer was polled outside a runtime; use it inside annulus::run")
        });
        let action = TimerAction::Wake(cx.waker().clone());
        let key =
            core.borrow().ok().map(|mut inner| inner.state.timers.insert(self.deadline, action));
        self.timer = key.map(|key| (core, key));
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_due = Instant::now() >= self.deadline;
        // A sleep that has already waited completes even without budget. Otherwise a time-out would
        // never fire next to a future that uses up the budget.
        if is_due && (budget::poll_take(cx).is_ready() || self.timer.is_some()) {
            self.cancel();
            return Poll::Ready(());
        }
        self.set_timer(cx);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}
