//! Reading the clock: the only part of an [`Instant`] that needs the thread's runtime.

use crate::runtime::current;
use crate::timers::Instant;
use annulus_kernel::{Kernel, Linux};
use std::time::Duration;

impl Instant {
    /// The current time.
    pub fn now() -> Self {
        let now = current::with(|core| core.time()).unwrap_or_else(|| Linux.now());
        Self::since_origin(now)
    }

    /// The time since this instant.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }
}
