//! Points in time, the clock of a guest's host, and the heap of timers.

mod clock;
mod heap;

pub(crate) use clock::HostClock;
pub use clock::Instant;
pub(crate) use heap::{TimerAction, TimerKey, Timers};
