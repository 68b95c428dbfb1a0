//! Minimum wait: while events arrive together, a sleep waits for several of them, for a moment.
//!
//! The kernel wakes the loop once per batch instead of once per event, so a batch takes one system
//! call and one wake-up, and each event may wait for the whole moment. An event that arrives alone,
//! like the request of a single client, ends its sleep at once.

use annulus_ring::Wait;
use std::time::Duration;

/// Number of events that end a sleep at once.
const BATCH_EVENTS: u32 = 8;
/// Number of events since the last sleep from which on the next sleep waits for a batch.
const MIN_EVENTS_TOGETHER: u64 = 2;

/// The policy that decides what ends a sleep.
#[derive(Debug)]
pub(super) struct MinWait {
    /// How long to wait for a batch; zero disables batches.
    limit: Duration,
    /// Number of completions before the last sleep.
    completions_before: u64,
}

impl MinWait {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, completions_before: 0 }
    }

    pub(super) fn is_enabled(&self) -> bool {
        !self.limit.is_zero()
    }

    /// Returns the wait for a sleep of at most `timeout`, after this many completions in total.
    pub(super) fn before_sleep(&mut self, completions: u64, timeout: Option<Duration>) -> Wait {
        let together = completions - self.completions_before;
        self.completions_before = completions;
        if together < MIN_EVENTS_TOGETHER {
            return Wait::For { completions: 1, timeout };
        }
        Wait::Batch { completions: BATCH_EVENTS, min_wait: self.limit, timeout }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    #[test]
    fn sleeps_wait_for_a_batch_after_events_that_arrived_together() {
        let mut policy = MinWait::new(LIMIT);
        let timeout = Some(Duration::from_secs(1));
        let batch = Wait::Batch { completions: BATCH_EVENTS, min_wait: LIMIT, timeout };
        let single = Wait::For { completions: 1, timeout };
        let waits = [1, 2, 4, 9, 10, 10, 12].map(|total| policy.before_sleep(total, timeout));
        assert_eq!(waits, [single, single, batch, batch, single, single, batch]);
    }

    #[test]
    fn a_limit_of_zero_disables_batches() {
        assert_eq!(
            [Duration::ZERO, LIMIT].map(|limit| MinWait::new(limit).is_enabled()),
            [false, true]
        );
    }
}
