//! How long a client waits before it connects again.

use std::time::Duration;

/// The maximum pause after the first failure, and after many failures. A client waits half of the
/// maximum, plus a share of the other half that differs between clients.
const PAUSE_LIMITS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// The pause is the longest from this number of failures on.
const MAX_DOUBLINGS: u8 = 8;

/// From this number of failures without a reply on, which takes 10 to 20 s if connections are
/// refused, the server is lost.
const MAX_FAILURES: u8 = 24;

/// A pause that doubles with each failure until a reply arrives. Clients that fail at the same time
/// wait for different times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// Failures and reconnection attempts since the last reply, at most [`MAX_FAILURES`].
    failures: u8,
    /// This client's share of the second half of a pause, in 255ths.
    share: u8,
}

impl Backoff {
    pub(super) fn new(client: usize) -> Backoff {
        // The factor spreads the shares of neighbouring clients.
        Backoff { failures: 0, share: (client as u8).wrapping_mul(159) }
    }

    /// Returns how long to wait now, which is zero without a failure.
    pub(super) fn pause(self) -> Duration {
        let failures = self.failures.min(MAX_DOUBLINGS);
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let pause = (PAUSE_LIMITS[0] * 2_u32.pow(doublings.into())).min(PAUSE_LIMITS[1]);
        pause / 2 + pause / 2 * u32::from(self.share) / 255
    }

    /// Counts a failure, or an attempt to reconnect.
    pub(super) fn raise(&mut self) {
        self.failures = (self.failures + 1).min(MAX_FAILURES);
    }

    /// Returns true if so many attempts have failed that the server will probably not answer again.
    pub(super) fn is_server_lost(self) -> bool {
        self.failures == MAX_FAILURES
    }

    /// Resets the pause, because a reply has arrived.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_a_reply() {
        let mut backoff = Backoff::new(0);
        assert_eq!(backoff.pause(), Duration::ZERO);
        let pauses: Vec<u128> = (0..20)
            .map(|_| {
                backoff.raise();
                backoff.pause().as_millis()
            })
            .collect();
        assert_eq!(pauses[..4], [5, 10, 20, 40]);
        assert_eq!(pauses[19], 500);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::ZERO);
    }

    #[test]
    fn server_is_lost_after_some_seconds_without_a_reply() {
        let mut backoff = Backoff::new(0);
        let mut waited = Duration::ZERO;
        while !backoff.is_server_lost() {
            backoff.raise();
            waited += backoff.pause();
        }
        assert!((Duration::from_secs(8)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
        backoff.reset();
        assert!(!backoff.is_server_lost());
    }

    #[test]
    fn clients_that_fail_together_reconnect_at_different_times() {
        let pause = |client| {
            let mut backoff = Backoff::new(client);
            (0..8).for_each(|_| backoff.raise());
            backoff.pause()
        };
        let pauses: std::collections::BTreeSet<_> = (0..256).map(pause).collect();
        assert_eq!(pauses.len(), 256);
        assert!(pauses.iter().all(|pause| (PAUSE_LIMITS[1] / 2..=PAUSE_LIMITS[1]).contains(pause)));
    }
}
