//! The timer that trims the pools some time after receives: all unused memory if nothing has
//! happened since, otherwise the memory that no turn has needed.
//!
//! A timeout in every wait would cost something in every turn. One kernel timer, started again only
//! after receives, costs almost nothing, and an idle ring has no timer.

use crate::pool::Trim;
use crate::slots::Token;
use annulus_ring::SafeEntry;
use annulus_ring::op::{TimeSpec, Timeout};
use rustix::io::Errno;

/// [`Trim::DELAY`] as the `struct timespec` that the entry points to.
static TRIM_DELAY: TimeSpec = TimeSpec {
    seconds: Trim::DELAY.as_secs() as i64,
    nanoseconds: Trim::DELAY.subsec_nanos() as i64,
};

/// The timer, and the completion count when it was started.
#[derive(Debug, Default)]
pub(super) struct TrimTimer {
    /// Number of completions at the start; `None` while the timer is not running.
    started_at: Option<u64>,
    /// Whether the kernel does not support the timeout operation.
    unsupported: bool,
}

impl TrimTimer {
    /// The token of the timer's completion.
    const TOKEN: Token = Token::internal(1);

    pub(super) fn is_due(&self) -> bool {
        self.started_at.is_none() && !self.unsupported
    }

    /// Starts the timer, and returns the entry to submit.
    pub(super) fn start(&mut self, completions: u64) -> SafeEntry {
        self.started_at = Some(completions);
        Timeout { after: &TRIM_DELAY }.entry().user_data(Self::TOKEN.bits())
    }

    /// Returns true if a completion belongs to the timer.
    #[inline]
    pub(super) fn owns(user_data: u64) -> bool {
        user_data == Self::TOKEN.bits()
    }

    /// Leaves out a completion that is no sign of activity.
    pub(super) fn leave_out_completion(&mut self) {
        self.started_at = self.started_at.map(|count| count + 1);
    }

    /// Handles the timer's completion, and returns the trim to carry out, which depends on whether
    /// another completion has arrived since the start. Any result but `ETIME` means that the kernel
    /// does not support the timeout operation.
    pub(super) fn expired(&mut self, result: Result<u32, Errno>, completions: u64) -> Option<Trim> {
        self.unsupported = result != Err(Errno::TIME);
        let started_at = self.started_at.take().filter(|_| !self.unsupported)?;
        // The count includes the completion of the timer itself.
        Some(Trim::after(completions == started_at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_completions_of_activity_keep_memory() {
        for (others, left_out, expected) in
            [(0, 0, Trim::Everything), (1, 0, Trim::Surplus), (1, 1, Trim::Everything)]
        {
            let mut timer = TrimTimer::default();
            timer.start(5);
            (0..left_out).for_each(|_| timer.leave_out_completion());
            assert_eq!(timer.expired(Err(Errno::TIME), 5 + others + 1), Some(expected));
        }
    }
}
