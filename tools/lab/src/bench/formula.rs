//! How a metric is computed from a sample.

use serde::{Deserialize, Serialize};

use super::metric::Sample;

/// A computation from the numbers of a sample. It is data, so that a definition can be stored in a
/// file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Formula {
    /// The number with this name.
    Number(String),
    /// A number divided by the sum of other numbers, times a factor.
    Per {
        /// The name of the number.
        number: String,
        /// The names of the numbers in the divisor's sum.
        by: Vec<String>,
        /// The factor, such as 1e9 for operations per second from ns.
        times: f64,
    },
}

impl Formula {
    /// Creates a formula for the number with this name.
    pub fn number(name: &str) -> Formula {
        Formula::Number(name.to_owned())
    }

    /// Creates a formula that divides a number by the sum of others and multiplies the result by a
    /// factor. Without others it only multiplies.
    pub fn per(number: &str, by: &[&str], times: f64) -> Formula {
        let by = by.iter().map(|&name| name.to_owned()).collect();
        Formula::Per { number: number.to_owned(), by, times }
    }

    /// Returns the result for a sample, or `None` if the sample lacks a number or the divisor is 0.
    pub fn of(&self, sample: &Sample) -> Option<f64> {
        match self {
            Formula::Number(name) => sample.get(name),
            Formula::Per { number, by, times } => {
                let sum = match by.as_slice() {
                    [] => 1.0,
                    names => names.iter().map(|name| sample.get(name)).sum::<Option<f64>>()?,
                };
                Some(sample.get(number)? / sum * times).filter(|result| result.is_finite())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_scaled_and_divided_by_a_sum() {
        let sample = Sample::from([("operations", 6.0), ("sent", 1.0), ("received", 2.0)]);
        assert_eq!(Formula::number("sent").of(&sample), Some(1.0));
        assert_eq!(Formula::per("operations", &[], 0.5).of(&sample), Some(3.0));
        assert_eq!(Formula::per("operations", &["sent", "received"], 10.0).of(&sample), Some(20.0));
    }

    #[test]
    fn a_missing_number_and_a_division_by_zero_have_no_result() {
        let sample = Sample::from([("operations", 6.0), ("ns", 0.0)]);
        assert_eq!(Formula::number("cpu_ns").of(&sample), None);
        assert_eq!(Formula::per("operations", &["ns"], 1.0).of(&sample), None);
        assert_eq!(Formula::per("operations", &["ns", "cpu_ns"], 1.0).of(&sample), None);
    }

    #[test]
    fn a_formula_is_plain_json() {
        let rate = Formula::per("operations", &["ns"], 1e9);
        let text = serde_json::to_string(&rate).expect("serialization failed");
        assert_eq!(text, r#"{"per":{"number":"operations","by":["ns"],"times":1000000000.0}}"#);
        assert_eq!(
            serde_json::from_str::<Formula>(&text).expect("the formula cannot be parsed"),
            rate
        );
        let text = r#"{"per":{"number":"operations","by":[],"times":1.0,"plus":1}}"#;
        assert!(serde_json::from_str::<Formula>(text).is_err());
    }
}
