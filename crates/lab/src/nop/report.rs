//! What a comparison of NOP throughput says.

use serde::Serialize;

use super::{Burst, Entries, Speed};
use crate::contest;
use crate::record::Record;
use crate::stats::Ratio;

/// Everything a run has to say.
pub type Report = contest::Report<Terms, Entries, Figures>;
/// One contender at one queue size.
pub type Row = contest::Row<Entries, Figures>;

/// How a run was set up.
pub type Settings = contest::Settings<Terms>;

/// What these comparisons have beside what all have.
#[derive(Clone, Debug, Serialize)]
pub struct Terms {
    /// The measured seconds of a slice.
    pub seconds: f64,
    /// The core of all of them.
    pub core: usize,
}

/// What came out at a queue size. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Operations a second.
    pub operations_per_second: Option<f64>,
    /// The best round's: noise on a shared machine only ever slows.
    pub best_operations_per_second: Option<f64>,
    /// CPU time an operation.
    pub cpu_ns_per_operation: Option<f64>,
    /// Operations a second of CPU time as a multiple of the other's, within the rounds.
    pub ratio: Option<Ratio>,
}

impl contest::Figures<Entries> for Figures {
    type Sample = Burst;

    fn of(record: &Record<Entries, Burst>, contender: usize, against: usize, cell: usize) -> Self {
        let rates = record.values(Speed::Rate, contender, cell);
        Figures {
            operations_per_second: record.median(Speed::Rate, contender, cell),
            best_operations_per_second: rates.into_iter().reduce(f64::max),
            cpu_ns_per_operation: record.median(Speed::PerCpu, contender, cell).map(|r| 1e9 / r),
            ratio: record.ratio(Speed::PerCpu, contender, against, cell),
        }
    }

    fn ratios(&self) -> impl Iterator<Item = Ratio> {
        self.ratio.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::Figures as _;
    use crate::schedule::Visit;

    #[test]
    fn operations_are_told_by_time_and_compared_by_cpu_time() {
        let mut record = Record::new(&["ring", "liburing"].map(String::from), &[Entries(64)], 1);
        for round in 0..6 {
            for (server, rate) in [300, 200, 300].into_iter().enumerate() {
                let operations = rate * 2 + round as u64;
                let burst = Burst { operations, seconds: 2.0, cpu_seconds: 1.0 };
                record.keep(Visit { round, server, cell: 0 }, Ok(burst));
            }
        }
        let figures = Figures::of(&record, 0, 1, 0);
        assert_eq!(figures.operations_per_second, Some(301.25));
        assert_eq!(figures.best_operations_per_second, Some(302.5));
        assert_eq!(figures.cpu_ns_per_operation, Some(1e9 / 602.5));
        let ratio = figures.ratios().next().expect("measured").median;
        assert!((1.49..1.5).contains(&ratio), "{ratio}");
    }
}
