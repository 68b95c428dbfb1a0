//! Ticks at a fixed rate.

use crate::time::{Sleep, sleep_until};
use crate::timers::Instant;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Ticks every `period`, the first time at once.
///
/// # Panics
/// If the period is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks every `period`, the first time at `start`.
///
/// # Panics
/// If the period is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of zero would tick forever; use a longer period");
    Interval { period, sleep: sleep_until(start), missed: MissedTicks::default() }
}

/// When the next tick is due after ticks were missed because nothing awaited them.
///
/// ```
/// # annulus::run(async {
/// use annulus::time::{Instant, MissedTicks, interval_at};
/// use std::time::Duration;
///
/// // Three ticks are due when the first wait begins. The first is delivered, then the next one that is on time.
/// let period = Duration::from_millis(10);
/// let start = Instant::now() - 2 * period;
/// let mut ticks = interval_at(start, period).missed_ticks(MissedTicks::Skip);
/// assert_eq!(ticks.tick().await, start);
/// assert!(ticks.tick().await >= start + 3 * period);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTicks {
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
/// [`missed_ticks`](Self::missed_ticks) selects another behavior.
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
    missed: MissedTicks,
}

impl Interval {
    /// Sets when the next tick is due after missed ones.
    #[must_use = "the interval is returned"]
    pub fn missed_ticks(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// Waits for the next tick and returns the time at which it was due. Cancel-safe: dropping the
    /// future loses no tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls like [`tick`](Self::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        self.sleep.reset(self.after(due));
        Poll::Ready(due)
    }

    /// Restarts the interval: the next tick is one period from now.
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
            MissedTicks::Skip => {
                let late = due.elapsed();
                due + (late - remainder(late, self.period)) + self.period
            }
            MissedTicks::Burst => due + self.period,
            // Late by less than a period, no tick was missed.
            MissedTicks::Delay if due.elapsed() < self.period => due + self.period,
            MissedTicks::Delay => Instant::now() + self.period,
        }
    }
}

/// Returns `time` modulo `period`.
fn remainder(time: Duration, period: Duration) -> Duration {
    const NANOS_PER_SECOND: u128 = 1_000_000_000;
    let nanos = time.as_nanos() % period.as_nanos();
    // Both conversions are exact: the remainder is less than the period.
    Duration::new((nanos / NANOS_PER_SECOND) as u64, (nanos % NANOS_PER_SECOND) as u32)
}
