//! The clocks of our contenders.

use std::ops::Sub;
use std::time::Duration;

use annulus_load::clock::{now, process_cpu};

use crate::bench::Sample;

/// A point in time, and the CPU time used by this process until then, kernel workers included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSample {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl ClockSample {
    pub(crate) fn now() -> ClockSample {
        ClockSample { wall: now(), cpu: process_cpu() }
    }

    /// The sample of this many operations in this time.
    pub(crate) fn sample(self, operations: u64) -> Sample {
        let [ns, cpu_ns] = [self.wall, self.cpu].map(|time| time.as_nanos() as f64);
        Sample::from([("operations", operations as f64), ("ns", ns), ("cpu_ns", cpu_ns)])
    }
}

/// The time between two samples.
impl Sub for ClockSample {
    type Output = ClockSample;

    fn sub(self, earlier: ClockSample) -> ClockSample {
        ClockSample { wall: self.wall - earlier.wall, cpu: self.cpu - earlier.cpu }
    }
}
