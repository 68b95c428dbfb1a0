//! Time: the runtime's clock, sleeps, timeouts and intervals.
//!
//! The clock is that of the kernel under the runtime: monotonic on Linux, virtual in a simulation. The kernel is only asked to wait
//! until the nearest deadline; a runtime without timers waits without ticks.

mod interval;
mod now;
mod sleep;
mod timeout;

pub use crate::timers::Instant;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
