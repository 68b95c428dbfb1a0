//! The columns of a report: the numbers of a metric for one contender in one cell.
//!
//! To add a column, add a field to `Figure` (JSON includes it unless it is skipped), an entry to
//! `Figure::numbers` for CSV, and a variant to `Column` and to `Column::ALL`. Then fill in the
//! match arms below, and list the column in the metrics that show it in text.

use annulus_load::stats::{Interval, MISS_PROBABILITY, Ratio, interval};
use serde::{Deserialize, Serialize};

use super::metric::{Fold, Metric, Role};
use super::record::Record;

/// The combined values of a metric for one contender in one cell.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figure {
    /// The median, or the sum; `null` if there are no values.
    pub value: Option<f64>,
    /// The interval of the median; `None` for a sum or with too few rounds.
    #[serde(skip)]
    interval: Option<Interval>,
    /// The value of the best round. Noise on a shared machine only slows a contender down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// The ratio to the baseline, computed within the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
}

impl Figure {
    pub(super) fn of(
        record: &Record,
        metric: &Metric,
        [contender, against]: [usize; 2],
        cell: usize,
    ) -> Figure {
        let (is_median, is_compared) = (metric.fold == Fold::Median, metric.is_compared());
        let values = || record.values(metric, contender, cell);
        let value = record.value(metric, contender, cell);
        let has_interval = is_median && value.is_some_and(f64::is_finite);
        Figure {
            value,
            interval: has_interval.then(|| interval(&values(), MISS_PROBABILITY)).flatten(),
            best: is_median.then(|| record.best(metric, contender, cell)).flatten(),
            ratio: is_compared.then(|| record.ratio(metric, contender, against, cell)).flatten(),
        }
    }

    /// Returns the numbers for CSV, with their column names.
    pub(crate) fn numbers(&self) -> [(&'static str, Option<f64>); 7] {
        let ratio = self.ratio.and_then(|ratio| ratio.interval);
        [
            ("value", self.value),
            ("low", self.interval.map(|of| of.low)),
            ("high", self.interval.map(|of| of.high)),
            ("best", self.best),
            ("ratio", self.ratio.map(|of| of.median)),
            ("ratio_low", ratio.map(|of| of.low)),
            ("ratio_high", ratio.map(|of| of.high)),
        ]
    }
}

/// A column that a table has for a metric. Results files store the columns of their metrics.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The combined value.
    Value,
    /// The best round.
    Best,
    /// The ratio to the baseline.
    Ratio,
}

impl Column {
    /// All columns in table order.
    pub(super) const ALL: [Column; 3] = [Column::Value, Column::Best, Column::Ratio];

    /// Returns true if text tables have this column.
    pub fn is_in_text(self, metric: &Metric) -> bool {
        match self {
            Column::Value | Column::Best | Column::Ratio => metric.columns.contains(&self),
        }
    }

    /// Returns true if the page's table of every figure has this column: the value of a metric with
    /// a label, and its ratio if the metric is primary or text tables show the ratio.
    pub(crate) fn is_on_page(self, metric: &Metric) -> bool {
        let decides = metric.role == Role::Primary || metric.columns.contains(&Column::Ratio);
        !metric.label().is_empty()
            && match self {
                Column::Value => true,
                Column::Best => false,
                Column::Ratio => decides,
            }
    }

    /// Returns the title of the column.
    pub fn title(self, metric: &Metric, baseline: &str) -> String {
        match self {
            Column::Value => metric.label().to_owned(),
            Column::Best => "best".to_owned(),
            Column::Ratio => format!("{} ÷ {baseline}", metric.noun),
        }
    }

    /// Returns the text of a table cell, or `None` without a number.
    pub(super) fn text(self, metric: &Metric, of: &Figure, is_baseline: bool) -> Option<String> {
        let number = |number: Option<f64>| number.map(|number| metric.format.text(number));
        match self {
            Column::Value => number(of.value),
            Column::Best => number(of.best),
            Column::Ratio if is_baseline => of.ratio.map(|_| "1".to_owned()),
            Column::Ratio => of.ratio.map(|ratio| ratio.to_string()),
        }
    }
}
