//! Connections opened at a rate.

use crate::clock;
use annulus::time;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// When the connections of a run may begin, over all its threads.
#[derive(Debug)]
pub(super) struct ConnectPace {
    /// The time between two connections, in ns; 0 if all may begin at once.
    step: u64,
    /// When the next connection may begin.
    next: AtomicU64,
}

impl ConnectPace {
    /// So many connections a second, or all at once.
    pub(super) fn new(rate: Option<f64>) -> ConnectPace {
        let step = rate.map_or(0, |rate| (1e9 / rate) as u64);
        ConnectPace { step, next: AtomicU64::new(0) }
    }

    /// Waits until the next connection may begin.
    pub(super) async fn wait(&self) {
        if self.step > 0 {
            let now = clock::nanos();
            let at = self.claim(now);
            time::sleep(Duration::from_nanos(at - now)).await;
        }
    }

    /// When the next connection may begin, which is claimed; `now` or later. Time that was not used is not made up for.
    fn claim(&self, now: u64) -> u64 {
        let after = |next: u64| Some(next.max(now) + self.step);
        let next = self.next.fetch_update(Relaxed, Relaxed, after);
        next.unwrap_or_else(|next| next).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_begin_at_the_rate() {
        let pace = ConnectPace::new(Some(1000.0));
        let claims: Vec<u64> = (0..4).map(|_| pace.claim(5_000_000)).collect();
        assert_eq!(claims, [5_000_000, 6_000_000, 7_000_000, 8_000_000]);
        assert_eq!(pace.claim(20_000_000), 20_000_000, "there is no burst after a pause");
        assert_eq!(pace.claim(20_000_000), 21_000_000);
    }
}
