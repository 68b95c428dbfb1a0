//! The parameters of a bulk transfer.

use crate::plan::{MAX_DATAGRAM, PlanError, check_counts, check_times};
use annulus::DriverChoice;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Allowed lengths of a datagram, in bytes: at least its number.
pub const LENGTHS: RangeInclusive<usize> = super::NUMBER_LEN..=MAX_DATAGRAM;
/// The largest window, in datagrams.
pub const MAX_WINDOW: usize = 4096;

/// One transfer.
#[derive(Clone, Debug)]
pub struct BulkPlan {
    /// Bytes per datagram, within [`LENGTHS`].
    pub length: usize,
    /// Datagrams that may be unacknowledged: 1 to [`MAX_WINDOW`].
    pub window: usize,
    /// How long to measure. The warm-up before takes a fifth of it.
    pub duration: Duration,
    /// Send with segmentation (GSO), receive with coalescing (GRO).
    pub segments: bool,
    /// Everything in flight is given up if no acknowledgement arrives for this long.
    pub ack_timeout: Duration,
    /// An end that makes no progress for this long fails.
    pub stall_timeout: Duration,
    /// The driver of both ends.
    pub driver: DriverChoice,
    /// The CPU of the sender.
    pub sender_pin: Option<usize>,
    /// The CPU of the receiver.
    pub receiver_pin: Option<usize>,
}

impl BulkPlan {
    /// 1200 bytes per datagram, a window of 512, with segments, for a second.
    pub fn new() -> BulkPlan {
        BulkPlan {
            length: 1200,
            window: 512,
            duration: Duration::from_secs(1),
            segments: true,
            ack_timeout: Duration::from_millis(20),
            stall_timeout: Duration::from_secs(5),
            driver: DriverChoice::Auto,
            sender_pin: None,
            receiver_pin: None,
        }
    }

    /// Checks that every value is within its limits.
    ///
    /// # Errors
    /// Names the first invalid value, its limit and a remedy.
    pub fn validate(&self) -> Result<(), PlanError> {
        check_counts(&[
            ("bytes a datagram", self.length, *LENGTHS.start(), *LENGTHS.end()),
            ("datagrams unacknowledged", self.window, 1, MAX_WINDOW),
        ])?;
        check_times(&[
            ("duration", self.duration),
            ("acknowledgement time-out", self.ack_timeout),
            ("stall time-out", self.stall_timeout),
        ])
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
