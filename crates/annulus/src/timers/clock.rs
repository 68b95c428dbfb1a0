//! The clock of a guest's host.

use std::time::Duration;

/// Time as another event loop has it, which may stand still or jump ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    /// The kernel's time when the host's was zero.
    origin: Duration,
    /// The host's time.
    elapsed: fn() -> Duration,
}

impl HostClock {
    /// Goes on from the kernel's time.
    pub(crate) fn new(now: Duration, elapsed: fn() -> Duration) -> Self {
        Self { origin: now.saturating_sub(elapsed()), elapsed }
    }

    pub(crate) fn now(self) -> Duration {
        self.origin.saturating_add((self.elapsed)())
    }
}
