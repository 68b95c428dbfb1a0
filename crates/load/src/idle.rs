//! Time-outs without timers: count beats where bytes move, and look at the counters now and then.
//!
//! A timer a message would cost more than the message. Instead each connection counts what it does, and a periodic sweep
//! asks each [`IdleTracker`] since when its count has stood still.

use std::time::Duration;

/// Since when a counter has stood still, as a sweep sees it.
#[derive(Clone, Copy, Debug)]
pub struct IdleTracker {
    changes: u64,
    since: Duration,
}

impl IdleTracker {
    /// Starts watching a counter that now stands at `beats`; `now` is [`crate::clock::now`].
    pub fn new(changes: u64, now: Duration) -> IdleTracker {
        IdleTracker { changes, since: now }
    }

    /// How long the counter has stood still, as far as the sweeps have seen: at most one sweep's interval too little,
    /// never too much by more than that.
    pub fn idle_for(&mut self, changes: u64, now: Duration) -> Duration {
        if changes != self.changes {
            *self = IdleTracker::new(changes, now);
        }
        now.saturating_sub(self.since)
    }
}

/// How often to sweep for a time-out of `limit`: eight times within it, between 1 ms and 100 ms.
pub fn sweep_interval(limit: Duration) -> Duration {
    (limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn quiet_grows_while_the_counter_stands_and_restarts_when_it_moves() {
        let mut idle = IdleTracker::new(7, SECOND);
        assert_eq!(idle.idle_for(7, 3 * SECOND), 2 * SECOND);
        assert_eq!(idle.idle_for(8, 4 * SECOND), Duration::ZERO);
        assert_eq!(idle.idle_for(8, 5 * SECOND), SECOND);
    }

    #[test]
    fn a_counter_that_wrapped_has_moved() {
        let mut idle = IdleTracker::new(u64::MAX, SECOND);
        assert_eq!(idle.idle_for(0, 2 * SECOND), Duration::ZERO);
    }

    #[test]
    fn sweeps_are_neither_frantic_nor_rare() {
        assert_eq!(sweep_interval(Duration::from_millis(80)), Duration::from_millis(10));
        assert_eq!(sweep_interval(60 * SECOND), Duration::from_millis(100));
        assert_eq!(sweep_interval(Duration::ZERO), Duration::from_millis(1));
    }
}
