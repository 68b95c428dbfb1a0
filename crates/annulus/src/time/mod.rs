//! Time: the runtime's clock, sleeps, timeouts and intervals.
//!
//! The runtime uses the clock of the kernel below it: monotonic on Linux, virtual in a simulation.
//! It has no periodic tick: it sleeps until the nearest deadline, or indefinitely without timers.

mod interval;
mod sleep;
mod timeout;

pub use crate::timers::Instant;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};

use crate::runtime::current;
use annulus_kernel::{Kernel, Linux};
use std::time::Duration;

// Reading the clock is the only part of an [`Instant`] that needs the thread's runtime.
impl Instant {
    /// Returns the current time.
    pub fn now() -> Self {
        let now = current::with(|core| core.time()).unwrap_or_else(|| Linux.now());
        Self::since_origin(now)
    }

    /// Returns the time since this instant.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }
}
