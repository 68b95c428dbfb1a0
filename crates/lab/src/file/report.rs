//! What a comparison of file I/O says.

use serde::Serialize;

use super::{Burst, Cost, Latency, Paths};
use crate::contest;
use crate::record::Record;
use crate::stats::{Ratio, median};

/// Everything a run has to say: `C` is what a cell is.
pub type Report<C> = contest::Report<Terms, C, Figures>;
/// One contender in one cell.
pub type Row<C> = contest::Row<C, Figures>;

/// How a run was set up.
pub type Settings = contest::Settings<Terms>;

/// What these comparisons have beside what all have.
#[derive(Clone, Debug, Serialize)]
pub struct Terms {
    /// The file system that was worked on, such as `ext4`.
    pub file_system: String,
    /// What carries the tasks: `uring` or `epoll`.
    pub driver: String,
    /// Where tasks make their calls.
    pub policy: String,
    /// The core of all of them.
    pub core: usize,
}

/// What came out in a cell. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Seconds of CPU time that a slice took.
    pub cpu_seconds: Option<f64>,
    /// Seconds that a slice took.
    pub real_seconds: Option<f64>,
    /// Seconds of CPU time an operation.
    pub cpu_each: Option<f64>,
    /// Operations a second.
    pub operations_per_second: Option<f64>,
    /// Megabytes a second, written and read together.
    pub megabytes_per_second: Option<f64>,
    /// CPU time an operation as a multiple of the first contender's, within the rounds.
    pub cpu_ratio: Option<Ratio>,
    /// Time an operation as a multiple of the first contender's, within the rounds.
    pub real_ratio: Option<Ratio>,
    /// Where the calls of all slices were made.
    pub paths: Paths,
    /// How long operations took, where each was timed.
    pub latency: Option<Latency>,
}

impl<C: Clone> contest::Figures<C> for Figures {
    type Sample = Burst;

    fn of(record: &Record<C, Burst>, contender: usize, against: usize, cell: usize) -> Self {
        let outcomes = record.slices_of(contender, cell).map(|(_, outcome)| outcome);
        let bursts: Vec<&Burst> = outcomes.filter_map(|outcome| outcome.as_ref().ok()).collect();
        let median = |cost| record.median(cost, contender, cell);
        let each = median(Cost::RealEach);
        let bytes_each = bursts.first().map(|burst| burst.bytes as f64 / burst.operations as f64);
        Figures {
            cpu_seconds: median(Cost::Cpu),
            real_seconds: median(Cost::Real),
            cpu_each: median(Cost::CpuEach),
            operations_per_second: each.map(f64::recip),
            megabytes_per_second: each.zip(bytes_each).map(|(each, bytes)| bytes / each / 1e6),
            cpu_ratio: record.ratio(Cost::CpuEach, contender, against, cell),
            real_ratio: record.ratio(Cost::RealEach, contender, against, cell),
            paths: bursts.iter().fold(Paths::default(), |sum, burst| sum.and(burst.paths)),
            latency: typical(&bursts),
        }
    }

    fn ratios(&self) -> impl Iterator<Item = Ratio> {
        self.cpu_ratio.into_iter().chain(self.real_ratio)
    }
}

/// The median slice's, figure by figure.
fn typical(bursts: &[&Burst]) -> Option<Latency> {
    let all: Vec<Latency> = bursts.iter().filter_map(|burst| burst.latency).collect();
    let middle = |figure: fn(&Latency) -> f64| median(&all.iter().map(figure).collect::<Vec<_>>());
    Some(Latency {
        p50: middle(|l| l.p50)?,
        p99: middle(|l| l.p99)?,
        p99_9: middle(|l| l.p99_9)?,
        max: middle(|l| l.max)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Cycles;
    use super::*;
    use crate::contest::Figures as _;
    use crate::schedule::Visit;

    #[test]
    fn a_row_has_both_times_and_the_sum_of_all_paths() {
        let cell = Cycles { workers: 2, cycles: 50, bytes: 10 };
        let mut record = Record::new(&["threads", "tasks"].map(String::from), &[cell], 1);
        for round in 0..6 {
            for (server, ns) in [1_000_000, 500_000, 1_000_000].into_iter().enumerate() {
                let (paths, cpu_ns) = (Paths { inline: 400, ..Paths::default() }, ns / 2);
                let (operations, bytes) = (100, 2000);
                let burst = Burst { operations, bytes, ns, cpu_ns, paths, latency: None };
                record.keep(Visit { round, server, cell: 0 }, Ok(burst));
            }
        }
        let [threads, tasks] = [0, 1].map(|contender| Figures::of(&record, contender, 0, 0));
        assert_eq!((threads.cpu_seconds, threads.real_seconds), (Some(0.0005), Some(0.001)));
        let ratios = contest::Figures::<Cycles>::ratios(&tasks);
        let ratios: Vec<f64> = ratios.map(|ratio| ratio.median).collect();
        assert_eq!((ratios, tasks.paths.inline), (vec![0.5, 0.5], 2400));
        let rate = tasks.operations_per_second.expect("measured");
        assert!((rate - 200_000.0).abs() < 1e-6, "{rate}");
        assert!((tasks.megabytes_per_second.expect("measured") - 4.0).abs() < 1e-9);
    }
}
