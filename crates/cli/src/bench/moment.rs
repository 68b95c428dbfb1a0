//! What a contender reads off its clocks.

use annulus_load::clock::{now, process_cpu};
use std::ops::Sub;
use std::time::Duration;

/// A point in time, and the CPU time that this process has used by then, kernel workers included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
}

impl Moment {
    pub(super) fn now() -> Moment {
        Moment { wall: now(), cpu: process_cpu() }
    }
}

/// What was spent between two moments.
impl Sub for Moment {
    type Output = Moment;

    fn sub(self, earlier: Moment) -> Moment {
        Moment { wall: self.wall - earlier.wall, cpu: self.cpu - earlier.cpu }
    }
}
