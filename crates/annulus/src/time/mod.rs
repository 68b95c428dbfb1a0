//! Time: the runtime's clock, sleeps, timeouts and intervals.
//!
//! The clock is the kernel's under the runtime: monotonic on Linux, virtual in a simulation. Only the nearest timer goes
//! into the kernel's wait; an idle runtime without timers sleeps without ticks.

mod heap;
mod instant;
mod interval;
mod now;
mod sleep;
mod timeout;

pub(crate) use heap::{Fire, TimerKey, Timers};
pub use instant::Instant;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
