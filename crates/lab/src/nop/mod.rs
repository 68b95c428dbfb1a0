//! NOP throughput: how many operations a second get through a ring, by queue size and by how it is used.
//!
//! A [contender](crate::contest) is asked `ENTRIES SECONDS` and answers `OPERATIONS NANOSECONDS CPU_NANOSECONDS`, with
//! a ring of that size, warmed up, and kept busy for that long: fill the queue, submit it all, take every completion.

mod report;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::contest::{self, Question};
use crate::record::Figure;

pub use report::{Figures, Report, Row, Settings, Terms};

/// How much longer than its slice an answer may take: setting a ring up, warming up, and the moods of a machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Contenders at NOPs.
pub type Rig = contest::Rig<Entries>;

/// A cell: entries of the submission queue, all filled before each system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entries(pub u32);

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.0)
    }
}

impl Question for Entries {
    type Answer = Burst;

    fn line(&self, slice: Duration) -> String {
        format!("{} {}", self.0, slice.as_secs_f64())
    }

    fn read(&self, answer: &str) -> Option<Burst> {
        Burst::parse(answer)
    }

    fn patience(&self, slice: Duration) -> Duration {
        slice + PATIENCE
    }
}

/// What one slice measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// Operations completed.
    pub operations: u64,
    /// The time they took.
    pub seconds: f64,
    /// The CPU time that the contender used for them.
    pub cpu_seconds: f64,
}

impl Burst {
    /// Reads `OPERATIONS NANOSECONDS CPU_NANOSECONDS`, none of them zero.
    fn parse(answer: &str) -> Option<Burst> {
        let number = |word: &str| word.parse().ok().filter(|&number| number > 0);
        let numbers: Vec<u64> = answer.split(' ').map(number).collect::<Option<_>>()?;
        let &[operations, ns, cpu_ns] = numbers.as_slice() else { return None };
        Some(Burst { operations, seconds: ns as f64 / 1e9, cpu_seconds: cpu_ns as f64 / 1e9 })
    }
}

/// A figure of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Operations a second: what is published.
    Rate,
    /// Operations a second of CPU time: what is compared, since somebody else's work on the core doesn't move it.
    PerCpu,
}

impl Figure<Burst> for Speed {
    fn of(self, burst: &Burst) -> f64 {
        let seconds = match self {
            Speed::Rate => burst.seconds,
            Speed::PerCpu => burst.cpu_seconds,
        };
        burst.operations as f64 / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_three_numbers_above_zero() {
        let burst = Burst { operations: 640, seconds: 2e-6, cpu_seconds: 1e-6 };
        assert_eq!(Burst::parse("640 2000 1000"), Some(burst));
        for wrong in ["", "640", "640 2000", "640 2000 0", "0 1 1", "1 2 3 4", "1 2 x", "-1 2 3"] {
            assert_eq!(Burst::parse(wrong), None, "{wrong}");
        }
        assert_eq!((Speed::Rate.of(&burst), Speed::PerCpu.of(&burst)), (3.2e8, 6.4e8));
    }
}
