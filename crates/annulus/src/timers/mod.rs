//! Points in time, the clock of a guest's host, and the heap of timers.

pub(crate) mod clock;
mod heap;
mod instant;

pub(crate) use heap::{TimerAction, TimerKey, Timers};
pub use instant::Instant;
