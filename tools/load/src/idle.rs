//! Timeouts without timers: connections count their activity, and a periodic sweep reads the
//! counters.
//!
//! A timer per message would cost more than the message. Instead each connection counts its sends
//! and receives, and a sweep asks an [`IdleTracker`] how long the counter has not changed.

use std::time::Duration;

/// Tracks how long a counter has not changed, as seen by sweeps.
#[derive(Clone, Copy, Debug)]
pub struct IdleTracker {
    changes: u64,
    since: Duration,
}

impl IdleTracker {
    /// Creates a tracker for a counter at `changes`; `now` comes from [`crate::clock::now`].
    pub fn new(changes: u64, now: Duration) -> IdleTracker {
        IdleTracker { changes, since: now }
    }

    /// Returns how long the counter has not changed, as seen by the sweeps: accurate to one sweep
    /// interval.
    pub fn idle_for(&mut self, changes: u64, now: Duration) -> Duration {
        if changes != self.changes {
            *self = IdleTracker::new(changes, now);
        }
        now.saturating_sub(self.since)
    }
}

/// Returns the sweep interval for a timeout of `limit`: an eighth of it, but at least 1 ms and at
/// most 100 ms.
pub fn sweep_interval(limit: Duration) -> Duration {
    (limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn idle_time_grows_until_the_counter_changes() {
        let mut idle = IdleTracker::new(7, SECOND);
        assert_eq!(idle.idle_for(7, 3 * SECOND), 2 * SECOND);
        assert_eq!(idle.idle_for(8, 4 * SECOND), Duration::ZERO);
        assert_eq!(idle.idle_for(8, 5 * SECOND), SECOND);
    }

    #[test]
    fn wrapped_counter_counts_as_changed() {
        let mut idle = IdleTracker::new(u64::MAX, SECOND);
        assert_eq!(idle.idle_for(0, 2 * SECOND), Duration::ZERO);
    }

    #[test]
    fn sweep_interval_is_clamped_to_1_to_100_ms() {
        assert_eq!(sweep_interval(Duration::from_millis(80)), Duration::from_millis(10));
        assert_eq!(sweep_interval(60 * SECOND), Duration::from_millis(100));
        assert_eq!(sweep_interval(Duration::ZERO), Duration::from_millis(1));
    }
}
