//! How long datagrams are, how many may be under way, for how long.

use crate::datagrams::MAX_DATAGRAM;
use crate::plan::{PlanError, check_counts, check_times};
use annulus::DriverChoice;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes a datagram can have: a number at least.
pub const LENGTHS: RangeInclusive<usize> = super::HEAD..=MAX_DATAGRAM;
/// The most datagrams that may be unacknowledged.
pub const MAX_WINDOW: usize = 4096;

/// One transfer.
#[derive(Clone, Debug)]
pub struct BulkPlan {
    /// Bytes a datagram, of [`LENGTHS`].
    pub length: usize,
    /// Datagrams that may be unacknowledged: 1 to [`MAX_WINDOW`].
    pub window: usize,
    /// How long to measure, after a fifth of that to warm up.
    pub duration: Duration,
    /// Have the kernel cut what is sent, and put together what is received.
    pub segments: bool,
    /// What both ends run on.
    pub driver: DriverChoice,
    /// The CPU of the sender.
    pub sender_pin: Option<usize>,
    /// The CPU of the receiver.
    pub receiver_pin: Option<usize>,
}

impl BulkPlan {
    /// 1200 bytes a datagram, 512 unacknowledged, with segments, for a second.
    pub fn new() -> BulkPlan {
        BulkPlan {
            length: 1200,
            window: 512,
            duration: Duration::from_secs(1),
            segments: true,
            driver: DriverChoice::Auto,
            sender_pin: None,
            receiver_pin: None,
        }
    }

    /// Whether the plan can be carried out at all.
    ///
    /// # Errors
    /// Names the first value that cannot be, its limit, and the way out.
    pub fn validate(&self) -> Result<(), PlanError> {
        check_counts(&[
            ("bytes a datagram", self.length, *LENGTHS.start(), *LENGTHS.end()),
            ("datagrams unacknowledged", self.window, 1, MAX_WINDOW),
        ])?;
        check_times(&[("duration", self.duration)])
    }

    pub(super) fn warm_up(&self) -> Duration {
        self.duration / 5
    }
}

impl Default for BulkPlan {
    fn default() -> Self {
        BulkPlan::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named_with_their_limits() {
        let error = |change: fn(&mut BulkPlan)| {
            let mut plan = BulkPlan::new();
            assert_eq!(plan.validate(), Ok(()));
            change(&mut plan);
            plan.validate().unwrap_err().to_string()
        };
        assert_eq!(error(|plan| plan.length = 7), "7 bytes a datagram: ask for 8 to 65507");
        assert!(error(|plan| plan.length = 65_508).contains("65508 bytes"));
        let window = error(|plan| plan.window = 4097);
        assert_eq!(window, "4097 datagrams unacknowledged: ask for 1 to 4096");
        assert!(error(|plan| plan.duration = Duration::ZERO).contains("duration of zero"));
    }
}
