//! What a slice measures, and the metrics that follow from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one slice measured: numbers by name, as the contender or the load reported them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sample(BTreeMap<String, f64>);

impl Sample {
    /// The number of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Sets the number of this name.
    pub fn set(&mut self, name: &str, number: f64) {
        self.0.insert(name.to_owned(), number);
    }

    /// One number divided by another.
    pub fn per(&self, number: &str, by: &str) -> Option<f64> {
        Some(self.get(number)? / self.get(by)?)
    }
}

impl<const N: usize> From<[(&str, f64); N]> for Sample {
    fn from(numbers: [(&str, f64); N]) -> Sample {
        Sample(numbers.map(|(name, number)| (name.to_owned(), number)).into())
    }
}

/// A quantity that every slice of a bench yields, as data: so that one engine compares by any of them.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its key in JSON.
    pub key: &'static str,
    /// The title of its column.
    pub title: &'static str,
    /// What a ratio of it is called: the `CPU` of `CPU ÷ uring`.
    pub noun: &'static str,
    /// How it follows from a sample.
    pub of: fn(&Sample) -> Option<f64>,
    /// Which direction is better.
    pub better: Better,
    /// What its ratios decide.
    pub role: Role,
    /// What of it a table shows.
    pub columns: &'static [Column],
    /// How it is written.
    pub format: Format,
    /// What many slices come to.
    pub fold: Fold,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The lower.
    Lower,
    /// The higher.
    Higher,
}

/// What the ratios of a metric decide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// Nothing: there are none.
    Plain,
    /// Nothing, but they are reported.
    Compared,
    /// Whether the control is like the contender it is a copy of.
    Checked,
    /// That, and which contender wins. A bench has one metric of this role.
    Primary,
    /// Whether the best by the primary metric may win: its own ratio must not be worse than this.
    Guard(f64),
}

/// What of a metric a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The median of the rounds, or the sum.
    Value,
    /// The best round.
    Best,
    /// The ratio to the baseline.
    Ratio,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As an integer with separated thousands.
    Whole,
    /// With this many decimals.
    Decimals(usize),
    /// With four significant digits.
    Significant,
    /// As whole µs, or as seconds if it is long.
    Micros,
}

/// What the values of many slices come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Their median.
    Median,
    /// Their sum.
    Sum,
}

/// A metric that is named and shown, and compared with nothing; the base of the others.
pub const PLAIN: Metric = Metric {
    key: "",
    title: "",
    noun: "",
    of: |_| None,
    better: Better::Lower,
    role: Role::Plain,
    columns: &[Column::Value],
    format: Format::Decimals(1),
    fold: Fold::Median,
};

/// Operations a second.
pub const RATE: Metric = Metric {
    key: "rate",
    title: "operations/s",
    noun: "operations/s",
    of: |sample| sample.per("operations", "ns").map(|rate| rate * 1e9),
    better: Better::Higher,
    format: Format::Whole,
    ..PLAIN
};

/// CPU time an operation, in µs.
pub const CPU: Metric = Metric {
    key: "cpu_us",
    title: "CPU µs",
    noun: "CPU",
    of: |sample| sample.per("cpu_ns", "operations").map(|ns| ns / 1e3),
    ..PLAIN
};

/// Megabytes a second.
pub const MB: Metric = Metric {
    key: "mb_per_second",
    title: "MB/s",
    of: |sample| sample.per("bytes", "ns").map(|rate| rate * 1e3),
    better: Better::Higher,
    format: Format::Whole,
    ..PLAIN
};

impl Metric {
    /// Whether its ratios are taken.
    pub fn is_compared(&self) -> bool {
        self.role != Role::Plain
    }

    /// The better of two values.
    pub(super) fn better_of(&self, a: f64, b: f64) -> f64 {
        match self.better {
            Better::Lower => a.min(b),
            Better::Higher => a.max(b),
        }
    }
}

impl Format {
    /// The number as text.
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

/// A number with this many decimals and its thousands separated.
pub fn grouped(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let whole = text.find('.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(whole);
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(ascii).collect();
    groups.join(",") + rest
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_plain_json_and_metrics_follow_from_it() {
        let text = r#"{"cpu_ns":500.0,"ns":2000.0,"operations":4.0}"#;
        let sample: Sample = serde_json::from_str(text).expect("numbers by name");
        assert_eq!(serde_json::to_string(&sample).expect("plain data"), text);
        assert_eq!(((RATE.of)(&sample), (CPU.of)(&sample)), (Some(2e6), Some(0.125)));
        assert_eq!((RATE.of)(&Sample::default()), None);
    }

    #[test]
    fn numbers_are_written_for_reading() {
        let grouped = [(0.0, 0), (999.0, 0), (1000.0, 0), (1_234_567.0, 0), (1234.567, 2)];
        let shown = grouped.map(|(number, decimals)| super::grouped(number, decimals));
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "1,234.57"]);
        let shown = [3.0381, 30.381, 303.81, 3038.1].map(|us| Format::Significant.text(us));
        assert_eq!(shown, ["3.038", "30.38", "303.8", "3038"]);
        let shown = [999_999.4, 3_988_803.0].map(|us| Format::Micros.text(us));
        assert_eq!(shown, ["999,999", "3.99 s"]);
    }
}
