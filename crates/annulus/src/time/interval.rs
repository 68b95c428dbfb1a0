//! Ticks at a fixed rate.

use super::{Instant, Sleep, sleep_until};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

/// Ticks every `period`, the first time at once.
///
/// # Panics
/// If the period is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of zero would tick without end; take a longer one");
    Interval { period, sleep: sleep_until(Instant::now()) }
}

/// A source of ticks. Ticks that were missed are skipped: the next one keeps the rhythm.
pub struct Interval {
    period: Duration,
    sleep: Sleep,
}

impl Interval {
    /// Waits for the next tick and tells when it was due. Cancel-safe: dropping it loses no tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| Pin::new(&mut self.sleep).poll(cx)).await;
        let due = self.sleep.deadline();
        self.sleep.reset(self.after(due));
        due
    }

    /// The time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The first moment of the rhythm after `due` that is not past.
    fn after(&self, due: Instant) -> Instant {
        let late = due.elapsed();
        due + (late - remainder(late, self.period)) + self.period
    }
}

/// What is left of `time` after as many whole periods as it has.
fn remainder(time: Duration, period: Duration) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let nanos = time.as_nanos() % period.as_nanos();
    // Both fit: it is less than the period.
    Duration::new((nanos / SECOND) as u64, (nanos % SECOND) as u32)
}
