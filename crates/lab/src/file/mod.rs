//! File I/O: what it costs to open, write, read and close files, and how fast blocks of one are read and written.
//!
//! A [contender](crate::contest) works in a folder that it was given, and answers with a [`Burst`] as a line of JSON.

mod blocks;
mod cycles;
mod report;

use serde::{Deserialize, Serialize};

use crate::record::Figure;

pub use blocks::{Blocks, Pattern};
pub use cycles::Cycles;
pub use report::{Figures, Report, Row, Settings, Terms};

/// What one slice measured.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Burst {
    /// Cycles, or blocks.
    pub operations: u64,
    /// Bytes that were written and read, both counted.
    pub bytes: u64,
    /// The time they took, in ns.
    pub ns: u64,
    /// The CPU time that the contender used for them, in ns.
    pub cpu_ns: u64,
    /// Where its runtime made the calls; zeroes where there is no such choice.
    #[serde(default)]
    pub paths: Paths,
    /// How long operations took, where each was timed.
    #[serde(default)]
    pub latency: Option<Latency>,
}

/// How long operations took, in µs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Latency {
    /// The middle one.
    pub p50: f64,
    /// What one in a hundred exceeded.
    pub p99: f64,
    /// What one in a thousand exceeded.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    /// Of operations that took so many ns each; `None` of none.
    pub fn of(mut all: Vec<u64>) -> Option<Latency> {
        all.sort_unstable();
        let last = all.len().checked_sub(1)?;
        let at = |share: f64| all[(last as f64 * share) as usize] as f64 / 1e3;
        Some(Latency { p50: at(0.5), p99: at(0.99), p99_9: at(0.999), max: at(1.0) })
    }
}

/// How many calls went which way.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Paths {
    /// Made on the loop.
    pub inline: u64,
    /// Tried on the loop first, and not found in memory.
    pub misses: u64,
    /// Made by the ring.
    pub ring: u64,
    /// Of these, those whose memory was registered.
    #[serde(default)]
    pub registered: u64,
    /// Made by worker threads.
    pub worker: u64,
}

impl Burst {
    /// Reads an answer.
    fn parse(answer: &str) -> Option<Burst> {
        let burst: Burst = serde_json::from_str(answer).ok()?;
        let measured = burst.operations > 0 && burst.ns > 0 && burst.cpu_ns > 0;
        measured.then_some(burst)
    }
}

impl Paths {
    /// These and those.
    pub fn and(self, other: Paths) -> Paths {
        Paths {
            inline: self.inline + other.inline,
            misses: self.misses + other.misses,
            ring: self.ring + other.ring,
            registered: self.registered + other.registered,
            worker: self.worker + other.worker,
        }
    }

    /// Those that came after `before` was taken.
    pub fn since(self, before: Paths) -> Paths {
        Paths {
            inline: self.inline - before.inline,
            misses: self.misses - before.misses,
            ring: self.ring - before.ring,
            registered: self.registered - before.registered,
            worker: self.worker - before.worker,
        }
    }

    /// All calls that were made.
    pub fn calls(self) -> u64 {
        self.inline + self.ring + self.worker
    }
}

/// A figure of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Seconds of CPU time.
    Cpu,
    /// Seconds that it took.
    Real,
    /// Seconds of CPU time an operation.
    CpuEach,
    /// Seconds an operation.
    RealEach,
}

impl Figure<Burst> for Cost {
    fn of(self, burst: &Burst) -> f64 {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let each = |ns: u64| seconds(ns) / burst.operations as f64;
        match self {
            Cost::Cpu => seconds(burst.cpu_ns),
            Cost::Real => seconds(burst.ns),
            Cost::CpuEach => each(burst.cpu_ns),
            Cost::RealEach => each(burst.ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_was_done_and_what_it_took() {
        let paths = Paths { inline: 9, misses: 1, ring: 2, registered: 1, worker: 3 };
        let burst = Burst {
            operations: 4,
            bytes: 80,
            ns: 2_000_000_000,
            cpu_ns: 1_000_000_000,
            paths,
            latency: None,
        };
        let line = serde_json::to_string(&burst).expect("plain numbers");
        assert_eq!(Burst::parse(&line), Some(burst));
        let plain = Burst::parse(r#"{"operations":4,"bytes":80,"ns":7,"cpu_ns":5}"#);
        assert_eq!(plain.expect("a peer knows no paths").paths, Paths::default());
        for wrong in ["", "4 80 7 5", r#"{"operations":0,"bytes":0,"ns":7,"cpu_ns":5}"#] {
            assert_eq!(Burst::parse(wrong), None, "{wrong}");
        }
        assert_eq!((Cost::Real.of(&burst), Cost::CpuEach.of(&burst)), (2.0, 0.25));
    }

    #[test]
    fn latencies_are_of_the_sorted() {
        let latency = Latency::of((0..=1000).rev().map(|n| n * 1000).collect()).expect("some");
        assert_eq!((latency.p50, latency.p99, latency.max), (500.0, 990.0, 1000.0));
        assert_eq!(Latency::of(Vec::new()), None);
    }

    #[test]
    fn paths_add_up_and_are_told_apart() {
        let one = Paths { inline: 9, misses: 1, ring: 2, registered: 0, worker: 3 };
        assert_eq!(one.and(one).since(one), one);
        assert_eq!(one.calls(), 14);
    }
}
