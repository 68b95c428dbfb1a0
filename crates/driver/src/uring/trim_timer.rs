//! The timer that trims the pools some time after receives: all memory that is not in use if nothing has happened since, else
//! what no turn has needed.
//!
//! A timeout with every wait would cost every turn. One timer in the kernel, started again only while receives go on, costs
//! nothing, and an idle ring has none.

use crate::pool::Trim;
use crate::slots::Token;
use annulus_ring::SafeEntry;
use annulus_ring::op::{TimeSpec, Timeout};
use rustix::io::Errno;

/// [`Trim::DELAY`], as the entry names it.
static DELAY: TimeSpec = TimeSpec {
    seconds: Trim::DELAY.as_secs() as i64,
    nanoseconds: Trim::DELAY.subsec_nanos() as i64,
};

/// The timer, and what has happened since it was started.
#[derive(Debug, Default)]
pub(super) struct TrimTimer {
    /// Completions counted at the start; `None` while it does not run.
    started_at: Option<u64>,
    /// The kernel has no timers.
    unsupported: bool,
}

impl TrimTimer {
    /// The token of the timer's completion.
    const TOKEN: Token = Token::ignored(1);

    pub(super) fn is_due(&self) -> bool {
        self.started_at.is_none() && !self.unsupported
    }

    /// Starts the timer: the entry to submit.
    pub(super) fn start(&mut self, completions: u64) -> SafeEntry {
        self.started_at = Some(completions);
        Timeout { after: &DELAY }.entry().user_data(Self::TOKEN.bits())
    }

    /// Whether a completion is the timer's.
    #[inline]
    pub(super) fn owns(user_data: u64) -> bool {
        user_data == Self::TOKEN.bits()
    }

    /// The timer has expired: the trim depends on whether another completion has come since the start.
    pub(super) fn expired(&mut self, result: Result<u32, Errno>, completions: u64) -> Option<Trim> {
        self.unsupported = result != Err(Errno::TIME);
        let started_at = self.started_at.take().filter(|_| !self.unsupported)?;
        // The completion of the timer is one of those counted.
        Some(Trim::after(completions == started_at + 1))
    }
}
