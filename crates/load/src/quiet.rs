//! Time-outs without timers: count beats where bytes move, and look at the counters now and then.
//!
//! A timer a message would cost more than the message. Instead each connection counts what it does, and a periodic sweep
//! asks each [`Quiet`] since when its count has stood still.

use std::time::Duration;

/// Since when a counter has stood still, as a sweep sees it.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    beats: u64,
    since: Duration,
}

impl Quiet {
    /// Starts watching a counter that now stands at `beats`; `now` is [`crate::clock::now`].
    pub fn new(beats: u64, now: Duration) -> Quiet {
        Quiet { beats, since: now }
    }

    /// How long the counter has stood still, as far as the sweeps have seen: at most one sweep's interval too little,
    /// never too much by more than that.
    pub fn lasts(&mut self, beats: u64, now: Duration) -> Duration {
        if beats != self.beats {
            *self = Quiet::new(beats, now);
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
        let mut quiet = Quiet::new(7, SECOND);
        assert_eq!(quiet.lasts(7, 3 * SECOND), 2 * SECOND);
        assert_eq!(quiet.lasts(8, 4 * SECOND), Duration::ZERO);
        assert_eq!(quiet.lasts(8, 5 * SECOND), SECOND);
    }

    #[test]
    fn a_counter_that_wrapped_has_moved() {
        let mut quiet = Quiet::new(u64::MAX, SECOND);
        assert_eq!(quiet.lasts(0, 2 * SECOND), Duration::ZERO);
    }

    #[test]
    fn sweeps_are_neither_frantic_nor_rare() {
        assert_eq!(sweep_interval(Duration::from_millis(80)), Duration::from_millis(10));
        assert_eq!(sweep_interval(60 * SECOND), Duration::from_millis(100));
        assert_eq!(sweep_interval(Duration::ZERO), Duration::from_millis(1));
    }
}
