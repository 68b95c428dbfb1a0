//! Time: the runtime's clock, sleeps, timeouts and intervals.
//!
//! The runtime uses the kernel's clock: monotonic on Linux, virtual in a simulation. A guest may
//! use the clock of its host instead. There is no periodic tick: an idle loop sleeps until the
//! nearest deadline, or indefinitely if there are no timers.
//!
//! On Linux, this clock stops while the machine is suspended, so timers end later by that time. To
//! wait for a time of day, or for a time that includes suspends, put a `timerfd` with the clock
//! `CLOCK_REALTIME` or `CLOCK_BOOTTIME` into an [`AsyncFd`](crate::io::AsyncFd).

use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::budget;
pub use crate::timers::Instant;
use crate::timers::{TimerAction, TimerKey};
use crate::unwind::dispose_each;
use annulus_kernel::{Kernel, Linux};
use pin_project_lite::pin_project;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
// As in `tokio::time`, so that ported programs find it.
pub use std::time::Duration;
use std::{fmt, io};

// These functions are not in `timers`, because they use the runtime of the thread.
impl Instant {
    /// Returns the current time.
    pub fn now() -> Self {
        let now = current::with(|core| core.time()).unwrap_or_else(|| Linux.now());
        Self::since_origin(now)
    }

    /// Returns the time since this instant.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }
}

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
/// When polled outside a runtime before the deadline.
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

    /// Changes the deadline. A task that waits for the sleep is woken at the new one, even if it does
    /// not poll the sleep again before.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        let Some((core, key)) = self.timer.take() else { return };
        let key = core.borrow().ok().and_then(|mut inner| {
            let timers = &mut inner.state.timers;
            timers.remove(key).map(|wake| timers.insert(deadline, wake))
        });
        self.timer = key.map(|key| (core, key));
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
        let core = current::expect("a timer was polled");
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
        // A sleep that has already waited completes even without budget. Otherwise a timeout would
        // never expire next to a future that uses up the budget.
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

/// Runs a future for at most `duration`; then drops it and returns [`Elapsed`]. Each future
/// documents the effect of dropping it: dropped receives and accepts lose nothing. Like [`Sleep`],
/// it panics if it has to wait outside a runtime.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration), elapsed: Elapsed { limit: Some(duration) } }
}

/// Like [`timeout`], but with a deadline.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(deadline), elapsed: Elapsed { limit: None } }
}

pin_project! {
    /// A future with a deadline.
    #[must_use = "a timeout does nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
        elapsed: Elapsed,
    }
}

impl<F> Timeout<F> {
    /// Returns the future without its deadline.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The future is polled first: a result that is ready at the deadline counts.
        if let Poll::Ready(value) = this.future.poll(cx) {
            return Poll::Ready(Ok(value));
        }
        this.sleep.poll(cx).map(|()| Err(*this.elapsed))
    }
}

/// The error of a future that was not ready within its time limit. The message states the limit:
/// `not ready within 700ms`. Converted to [`io::Error`], the kind is `TimedOut` and the message is
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// `None` if the limit was a deadline.
    limit: Option<Duration>,
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "not ready within {limit:?}"),
            None => f.write_str("not ready by the deadline"),
        }
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}

/// Returns an interval that ticks every `period`, the first time at once.
///
/// # Panics
/// If the period is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Returns an interval that ticks every `period`, the first time at `start`.
///
/// # Panics
/// If the period is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of zero would tick forever; use a longer period");
    Interval { period, sleep: sleep_until(start), missed: MissedTickBehavior::default() }
}

/// Determines when the next tick is due after ticks were missed, because nothing awaited them.
///
/// ```
/// # annulus::run(async {
/// use annulus::time::{Instant, MissedTickBehavior, interval_at};
/// use std::time::Duration;
///
/// // Three ticks are due when the first wait begins. The first is delivered, then the next one that
/// // is on time.
/// let period = Duration::from_millis(10);
/// let start = Instant::now() - 2 * period;
/// let mut ticks = interval_at(start, period);
/// ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
/// assert_eq!(ticks.tick().await, start);
/// assert!(ticks.tick().await >= start + 3 * period);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// At the next multiple of the period, counted from the first tick. Missed ticks are skipped.
    Skip,
    /// At once, until all missed ticks have been delivered.
    #[default]
    Burst,
    /// One period after the late tick, which delays all later ticks as well. If a tick is late by
    /// less than a period, no tick was missed.
    Delay,
}

/// A source of ticks. Missed ticks are delivered at once, unless
/// [`set_missed_tick_behavior`](Self::set_missed_tick_behavior) selects another behaviour.
///
/// ```
/// # annulus::run(async {
/// use annulus::time::interval;
/// use std::time::Duration;
///
/// let mut flush = interval(Duration::from_millis(2));
/// let first = flush.tick().await; // At once.
/// let second = flush.tick().await;
/// assert!(second - first >= flush.period()); // More if the loop was blocked in between.
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Interval {
    period: Duration,
    sleep: Sleep,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Sets when the next tick is due after missed ticks.
    pub fn set_missed_tick_behavior(&mut self, missed: MissedTickBehavior) {
        self.missed = missed;
    }

    /// Waits for the next tick and returns the time at which it was due. Cancel-safe: dropping the
    /// future loses no tick.
    ///
    /// # Panics
    /// When polled outside a runtime before the next tick is due.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls like [`tick`](Self::tick).
    ///
    /// # Panics
    /// The panic of [`tick`](Self::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        self.sleep.reset(self.after(due));
        Poll::Ready(due)
    }

    /// Restarts the interval: the next tick is one period from now. A task that waits for a tick is
    /// woken then.
    pub fn reset(&mut self) {
        self.reset_at(Instant::now() + self.period);
    }

    /// Restarts the interval, with the next tick at `start`.
    pub fn reset_at(&mut self, start: Instant) {
        self.sleep.reset(start);
    }

    /// Returns the time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the time of the tick that follows the one at `due`.
    fn after(&self, due: Instant) -> Instant {
        match self.missed {
            MissedTickBehavior::Skip => {
                let late = due.elapsed();
                due + (late - remainder(late, self.period)) + self.period
            }
            MissedTickBehavior::Burst => due + self.period,
            MissedTickBehavior::Delay if due.elapsed() < self.period => due + self.period,
            MissedTickBehavior::Delay => Instant::now() + self.period,
        }
    }
}

fn remainder(time: Duration, period: Duration) -> Duration {
    const NANOS_PER_SECOND: u128 = 1_000_000_000;
    let nanos = time.as_nanos() % period.as_nanos();
    // Both conversions are exact: the remainder is less than the period.
    Duration::new((nanos / NANOS_PER_SECOND) as u64, (nanos % NANOS_PER_SECOND) as u32)
}
