//! The values measured of each contender in each cell, round by round.

use std::collections::HashMap;

use crate::bench::{Fold, Metric, Report, Sample};
use annulus_load::stats::{Interval, MISS, interval};

/// The accepted samples of a report.
pub(super) struct Values<'a> {
    report: &'a Report,
    samples: HashMap<(&'a str, usize), Vec<&'a Sample>>,
}

/// The value of a metric for one contender in one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// The interval of the median; none with too few rounds, or for a sum.
    pub(super) interval: Option<Interval>,
}

impl<'a> Values<'a> {
    pub(super) fn new(report: &'a Report) -> Values<'a> {
        let cells = &report.settings.cells;
        let mut samples: HashMap<_, Vec<&Sample>> = HashMap::new();
        for slice in &report.samples {
            let cell = cells.iter().position(|cell| *cell == slice.cell);
            if let (Some(cell), Some(sample)) = (cell, &slice.sample) {
                samples.entry((slice.contender.as_str(), cell)).or_default().push(sample);
            }
        }
        Values { report, samples }
    }

    /// The estimate of a metric, if there is a value that is a number.
    pub(super) fn estimate(
        &self,
        metric: &Metric,
        contender: &str,
        cell: usize,
    ) -> Option<Estimate> {
        let row = self.report.row(contender, self.report.settings.cells.get(cell)?)?;
        let value = row.value(&metric.key).filter(|value| value.is_finite())?;
        let interval =
            (metric.fold == Fold::Median).then(|| self.interval(metric, contender, cell));
        Some(Estimate { value, interval: interval.flatten() })
    }

    fn interval(&self, metric: &Metric, contender: &str, cell: usize) -> Option<Interval> {
        let samples = self.samples.get(&(contender, cell))?.iter();
        let values: Vec<f64> = samples.filter_map(|sample| metric.of.of(sample)).collect();
        interval(&values, MISS)
    }
}
