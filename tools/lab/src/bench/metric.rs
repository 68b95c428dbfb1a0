//! Samples, and the metrics computed from them.

use std::collections::BTreeMap;

use annulus_page::text::grouped;
use serde::{Deserialize, Serialize};

use super::column::Column;
use super::formula::Formula;

/// The result of one slice: numbers by name, reported by the contender (`jobs.rs`) or the load
/// (`clients/`), with the server's usage (`server.rs`).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sample(BTreeMap<String, f64>);

impl Sample {
    /// Returns the number with this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Sets the number with this name. Numbers that are not finite are omitted, because JSON cannot
    /// represent them.
    pub fn set(&mut self, name: &str, number: f64) {
        if number.is_finite() {
            self.0.insert(name.to_owned(), number);
        }
    }
}

impl<const N: usize> From<[(&str, f64); N]> for Sample {
    fn from(numbers: [(&str, f64); N]) -> Sample {
        let mut sample = Sample::default();
        numbers.iter().for_each(|&(name, number)| sample.set(name, number));
        sample
    }
}

/// A quantity computed from every slice. It is data, so that one engine can compare by any metric.
/// A results file stores the metrics of its run, so a new metric appears only in new runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The key of the metric in JSON.
    pub key: String,
    /// The title of the metric's column.
    pub title: String,
    /// The name of the metric's ratio, such as `CPU` in `CPU ÷ uring`.
    pub noun: String,
    /// The computation from a sample.
    pub of: Formula,
    /// Which direction is better.
    pub better: Better,
    /// What the ratios decide.
    pub role: Role,
    /// The columns that tables show.
    pub columns: Vec<Column>,
    /// The number format.
    pub format: Format,
    /// How the values of several slices are combined.
    pub fold: Fold,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better.
    Lower,
    /// Higher is better.
    Higher,
}

/// What the ratios of a metric decide.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The metric has no ratios.
    Plain,
    /// The ratios are only reported.
    Compared,
    /// The ratio also decides whether the control equals the contender that it copies.
    Checked,
    /// The ratio decides the winner. A bench has at most one metric with this role.
    Primary,
    /// The better contender by the primary metric wins only if its ratio of this metric is not
    /// worse than this limit. A win of another program over annulus counts anyway.
    Guard(f64),
}

/// A number format.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// An integer with thousands separators.
    Whole,
    /// This many decimals, with thousands separators.
    Decimals(usize),
    /// Four significant digits.
    Significant,
    /// Whole µs, or seconds from 1 s on.
    Micros,
}

/// How the values of several slices are combined.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// The median of the values.
    Median,
    /// The sum of the values.
    Sum,
}

/// The key in a sample for the system calls per request, which are counted in the first round only.
pub(crate) const SYSTEM_CALLS_KEY: &str = "syscalls";

/// The minimum rate of a winner, as a multiple of another contender's rate.
pub const MIN_RATE_RATIO: f64 = 0.97;

/// Returns the operations-per-second metric.
pub fn rate() -> Metric {
    Metric {
        noun: "operations/s".into(),
        better: Better::Higher,
        format: Format::Whole,
        ..Metric::plain("rate", "operations/s", Formula::per("operations", &["ns"], 1e9))
    }
}

/// Returns the metric for CPU time per operation, in µs.
pub fn cpu() -> Metric {
    Metric {
        noun: "CPU".into(),
        ..Metric::plain("cpu_us", "CPU µs", Formula::per("cpu_ns", &["operations"], 1e-3))
    }
}

/// Returns the megabytes-per-second metric.
pub fn megabytes() -> Metric {
    Metric {
        better: Better::Higher,
        format: Format::Whole,
        ..Metric::plain("mb_per_second", "MB/s", Formula::per("bytes", &["ns"], 1e3))
    }
}

impl Metric {
    /// Creates a metric that is shown but not compared.
    pub fn plain(key: &str, title: &str, of: Formula) -> Metric {
        Metric {
            key: key.into(),
            title: title.into(),
            noun: String::new(),
            of,
            better: Better::Lower,
            role: Role::Plain,
            columns: vec![Column::Value],
            format: Format::Decimals(1),
            fold: Fold::Median,
        }
    }

    /// Creates a metric for a number of the sample that appears in CSV and JSON but in no table.
    pub fn hidden(key: &str) -> Metric {
        Metric { columns: Vec::new(), ..Metric::plain(key, "", Formula::number(key)) }
    }

    /// Returns the title, or the noun if the metric has no title or no column of values. Empty for
    /// a hidden metric.
    pub(crate) fn label(&self) -> &str {
        let is_shown = self.columns.contains(&Column::Value) || self.noun.is_empty();
        if is_shown && !self.title.is_empty() { &self.title } else { &self.noun }
    }

    /// Returns true if the metric has ratios.
    pub fn is_compared(&self) -> bool {
        self.role != Role::Plain
    }

    pub(super) fn better_of(&self, a: f64, b: f64) -> f64 {
        match self.better {
            Better::Lower => a.min(b),
            Better::Higher => a.max(b),
        }
    }
}

impl Format {
    /// Formats a number.
    pub fn text(self, number: f64) -> String {
        match self {
            Format::Whole => grouped(number, 0),
            Format::Decimals(decimals) => grouped(number, decimals),
            Format::Significant => {
                let decimals = match number {
                    ..10.0 => 3,
                    ..100.0 => 2,
                    ..1000.0 => 1,
                    _ => 0,
                };
                format!("{number:.decimals$}")
            }
            Format::Micros if number >= 1e6 => format!("{:.2} s", number / 1e6),
            Format::Micros => grouped(number, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_plain_json_and_metrics_follow_from_it() {
        let text = r#"{"cpu_ns":500.0,"ns":2000.0,"operations":4.0}"#;
        let sample: Sample = serde_json::from_str(text).expect("the sample cannot be parsed");
        assert_eq!(serde_json::to_string(&sample).expect("serialization failed"), text);
        assert_eq!((rate().of.of(&sample), cpu().of.of(&sample)), (Some(2e6), Some(0.125)));
        assert_eq!(rate().of.of(&Sample::default()), None);
    }

    #[test]
    fn numbers_are_formatted() {
        let grouped = [(0.0, 0), (999.0, 0), (1000.0, 0), (1_234_567.0, 0), (1234.567, 2)];
        let shown = grouped.map(|(number, decimals)| super::grouped(number, decimals));
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "1,234.57"]);
        let shown = [3.0381, 30.381, 303.81, 3038.1].map(|us| Format::Significant.text(us));
        assert_eq!(shown, ["3.038", "30.38", "303.8", "3038"]);
        let shown = [999_999.4, 3_988_803.0].map(|us| Format::Micros.text(us));
        assert_eq!(shown, ["999,999", "3.99 s"]);
    }
}
