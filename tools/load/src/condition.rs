//! Conditions on the figures of a run, which decide whether it has passed.

use crate::invalid::{InvalidValue, invalid};
use crate::recording::{Latencies, Percentiles, Recording};
use crate::schedule::{parse_number, parse_time};
use std::str::FromStr;
use std::time::Duration;

/// Limits that a run must stay within, such as `p99<5ms,errors<0.1%`.
///
/// Each condition is a figure, a comparison and a value. It states what must hold (`p99<5ms`) or
/// what must not (`p99>5ms`): a value of exactly 5 ms breaks the first and not the second. In both
/// forms, a time or count breaks the condition if it is too high, and a rate if it is too low.
///
/// | figure | value |
/// |---|---|
/// | `min`, `mean`, `max`, `p50`, `p99.9` and any other percentile | a response time: `5ms` |
/// | `errors` | failures and refusals, as a number or in percent of the requests |
/// | `failed`, `refused` | only failed requests, or only refusals |
/// | `unsent` | requests that were due but not sent, as a number or in percent |
/// | `rate` | replies per second: `10k` |
///
/// ```
/// use annulus_load::Conditions;
/// use annulus_load::recording::{Interval, Latencies, Recording, RunInfo};
///
/// let conditions: Conditions = "p99<5ms,errors<0.1%".parse().unwrap();
/// let mut second = Interval::new(0.0, 1.0);
/// (second.answered, second.failed) = (2000, 20);
/// second.response = Latencies::from_iter((1..=2000).map(|n| n * 1_000));
/// let intervals = vec![second];
/// let recording = Recording { seconds: 1.0, intervals, ..Recording::new(RunInfo::default()) };
/// let broken = conditions.broken_by(&recording);
/// assert_eq!(broken, ["errors: 0.990 % (20 of 2020), which is not below 0.1 %"]);
///
/// let error = "p99<5".parse::<Conditions>().unwrap_err().to_string();
/// assert_eq!(error, "'p99<5': a time needs a unit: write 5ms, 250us or 1s");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions(Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    name: String,
    figure: Figure,
    /// The limit: in ns for times, and a share if `is_share`.
    limit: f64,
    is_share: bool,
    /// Whether a value equal to the limit is accepted.
    is_inclusive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Min,
    Mean,
    Max,
    /// The percentile with this share of the latencies at or below it.
    Percentile(f64),
    Errors,
    Failed,
    Refused,
    Unsent,
    Rate,
}

/// A limit on a figure of the response times.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyLimit {
    /// The figure: `min`, `mean`, `max`, `p99` or another percentile.
    pub figure: String,
    /// The time that the figure must not reach or, if `is_inclusive`, not exceed.
    pub limit: Duration,
    /// Whether a value equal to the limit is accepted.
    pub is_inclusive: bool,
}

impl LatencyLimit {
    /// Returns true if a time, in nanoseconds, is within the limit.
    pub fn is_kept_by(&self, nanos: f64) -> bool {
        let limit = self.limit.as_nanos() as f64;
        nanos < limit || (self.is_inclusive && nanos == limit)
    }
}

impl Conditions {
    /// Returns the limits in order, or the name of the first figure that is not a response time.
    ///
    /// ```
    /// let conditions: annulus_load::Conditions = "p99<5ms".parse().unwrap();
    /// let limits = conditions.latency_limits().unwrap();
    /// assert!(limits[0].is_kept_by(4.9e6) && !limits[0].is_kept_by(5e6));
    /// let conditions: annulus_load::Conditions = "p99<5ms,errors<1".parse().unwrap();
    /// assert_eq!(conditions.latency_limits(), Err("errors".to_owned()));
    /// ```
    ///
    /// # Errors
    /// Fails if a condition is about a figure other than a response time.
    pub fn latency_limits(&self) -> Result<Vec<LatencyLimit>, String> {
        let limit = |one: &Condition| match one.figure.is_time() {
            true => Ok(LatencyLimit {
                figure: one.name.clone(),
                limit: Duration::from_nanos(one.limit as u64),
                is_inclusive: one.is_inclusive,
            }),
            false => Err(one.name.clone()),
        };
        self.0.iter().map(limit).collect()
    }

    /// Describes each broken condition. A percentile that needs more replies also breaks its
    /// condition.
    pub fn broken_by(&self, recording: &Recording) -> Vec<String> {
        self.0.iter().filter_map(|condition| condition.broken_by(recording)).collect()
    }

    /// Returns true if a condition limits errors, failed requests or refusals.
    pub fn allow_errors(&self) -> bool {
        let counts_errors =
            |figure| matches!(figure, Figure::Errors | Figure::Failed | Figure::Refused);
        self.0.iter().any(|condition| counts_errors(condition.figure))
    }
}

impl Condition {
    fn broken_by(&self, recording: &Recording) -> Option<String> {
        let Condition { name, limit, is_share, .. } = self;
        let total = recording.total();
        let ended = total.answered + total.failed;
        let failures = total.failed.max(recording.errors.values().sum());
        let (value, of) = match self.figure {
            Figure::Min => (total.response.min() as f64, None),
            Figure::Mean => (total.response.mean(), None),
            Figure::Max => (total.response.max() as f64, None),
            Figure::Percentile(share) => match percentile(&total.response, share) {
                Ok(nanos) => (nanos as f64, None),
                Err(why) => return Some(format!("{name}: {why}")),
            },
            Figure::Errors => ((failures + total.refused) as f64, Some(ended)),
            Figure::Failed => (failures as f64, Some(ended)),
            Figure::Refused => (total.refused as f64, Some(ended)),
            Figure::Unsent => (total.unsent as f64, Some(total.sent + total.unsent)),
            Figure::Rate => (total.rate(), None),
        };
        let compared = match of.filter(|_| *is_share) {
            Some(of) => value / of.max(1) as f64,
            None => value,
        };
        let is_rate = self.figure == Figure::Rate;
        let (better, bound) = match is_rate {
            true => (compared > *limit, if self.is_inclusive { "at least" } else { "above" }),
            false => (compared < *limit, if self.is_inclusive { "at most" } else { "below" }),
        };
        if better || (self.is_inclusive && compared == *limit) {
            return None;
        }
        let value = match (self.figure.is_time(), of) {
            (true, _) => duration(compared),
            (false, Some(of)) if *is_share => {
                format!("{:.3} % ({value} of {of})", compared * 100.0)
            }
            (false, _) if is_rate => format!("{value:.1}/s"),
            (false, _) => value.to_string(),
        };
        let limit = match (self.figure.is_time(), *is_share) {
            (true, _) => duration(*limit),
            (false, true) => format!("{} %", limit * 100.0),
            (false, false) if is_rate => format!("{limit}/s"),
            (false, false) => limit.to_string(),
        };
        Some(format!("{name}: {value}, which is not {bound} {limit}"))
    }
}

impl Figure {
    fn is_time(self) -> bool {
        matches!(self, Figure::Min | Figure::Mean | Figure::Max | Figure::Percentile(_))
    }
}

/// Returns a percentile, or an error if too few latencies lie beyond it.
fn percentile(latencies: &Latencies, share: f64) -> Result<u64, String> {
    let needed = Percentiles::samples_for(share);
    if latencies.len() < needed {
        return Err(format!(
            "unknown, because it needs {needed} replies and there are {}: measure for longer",
            latencies.len()
        ));
    }
    Ok(latencies.quantile(share))
}

fn duration(nanos: f64) -> String {
    let nanos = Duration::from_nanos(nanos.round() as u64);
    format!("{nanos:.3?}")
}

impl FromStr for Conditions {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Conditions, InvalidValue> {
        let all = text.split(',').map(|one| {
            let one = one.trim();
            parse(one).map_err(|why| invalid(format!("'{one}': {why}")))
        });
        all.collect::<Result<_, _>>().map(Conditions)
    }
}

fn parse(text: &str) -> Result<Condition, String> {
    let at = text.find(['<', '>']).ok_or("there is no < or >: write p99<5ms or errors<0.1%")?;
    let (name, rest) = text.split_at(at);
    let (sign, rest) = rest.split_at(1);
    let (has_equal, value) = match rest.strip_prefix('=') {
        Some(rest) => (true, rest.trim()),
        None => (false, rest.trim()),
    };
    let name = name.trim();
    let figure = parse_figure(name)?;
    // `p99<5ms` and `p99>=5ms` are the same limit: a value of 5 ms breaks it.
    let is_limit = (sign == "<") != (figure == Figure::Rate);
    let is_inclusive = is_limit == has_equal;
    let (limit, is_share) = match figure {
        Figure::Rate => (parse_number(value).map_err(|error| error.to_string())?, false),
        figure if figure.is_time() => {
            if value.parse::<f64>().is_ok() {
                return Err("a time needs a unit: write 5ms, 250us or 1s".into());
            }
            let time = parse_time(value).map_err(|error| error.to_string())?;
            (time.as_nanos() as f64, false)
        }
        _ => {
            let (number, is_share) = match value.strip_suffix('%') {
                Some(percent) => (percent.trim(), true),
                None => (value, false),
            };
            let number = number.parse::<f64>().ok().filter(|number| *number >= 0.0);
            let number = number.filter(|number| number.is_finite()).ok_or_else(|| {
                format!("'{value}' is neither a number nor a percentage: write 10 or 0.1%")
            })?;
            (if is_share { number / 100.0 } else { number }, is_share)
        }
    };
    Ok(Condition { name: name.to_owned(), figure, limit, is_share, is_inclusive })
}

fn parse_figure(name: &str) -> Result<Figure, String> {
    let percentile = |text: &str| text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n < 100.0);
    Ok(match name {
        "min" => Figure::Min,
        "mean" => Figure::Mean,
        "max" => Figure::Max,
        "errors" => Figure::Errors,
        "failed" => Figure::Failed,
        "refused" => Figure::Refused,
        "unsent" => Figure::Unsent,
        "rate" => Figure::Rate,
        _ => match name.strip_prefix('p').and_then(percentile) {
            Some(percent) => Figure::Percentile(percent / 100.0),
            None => {
                return Err(format!(
                    "'{name}' is not a figure: use p50, p99 or another percentile, min, mean, \
                     max, errors, failed, refused, unsent or rate"
                ));
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Interval, RunInfo};

    fn recording() -> Recording {
        let second = Interval {
            sent: 2040,
            answered: 2000,
            refused: 10,
            failed: 20,
            unsent: 60,
            // 1 µs to 2 ms.
            response: (1..=2000).map(|n| n * 1000).collect(),
            ..Interval::new(0.0, 1.0)
        };
        let intervals = vec![second];
        Recording { seconds: 1.0, intervals, ..Recording::new(RunInfo::default()) }
    }

    fn broken(text: &str) -> Vec<String> {
        text.parse::<Conditions>().unwrap_or_else(|e| panic!("{e}")).broken_by(&recording())
    }

    #[test]
    fn conditions_within_their_limits_hold() {
        for text in [
            "p99<5ms",
            "p99>5ms",
            "p50<=1.1ms, mean<2ms, min<=1us, max<3ms",
            "p99.5<1999us",
            "errors<2%",
            "errors<=30",
            "errors>30",
            "failed<21",
            "refused<1%",
            "unsent<=60",
            "rate>1.9k",
            "rate<1999",
            "rate>=2000",
        ] {
            assert_eq!(broken(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn broken_condition_names_the_value_and_its_limit() {
        for (text, said) in [
            ("p99<1ms", "p99: 1.980ms, which is not below 1.000ms"),
            ("p99>=1ms", "p99: 1.980ms, which is not below 1.000ms"),
            ("p99>1ms", "p99: 1.980ms, which is not at most 1.000ms"),
            ("errors<1%", "errors: 1.485 % (30 of 2020), which is not below 1 %"),
            ("errors<30", "errors: 30, which is not below 30"),
            ("failed<=19", "failed: 20, which is not at most 19"),
            ("unsent<1%", "unsent: 2.857 % (60 of 2100), which is not below 1 %"),
            ("rate>2k", "rate: 2000.0/s, which is not above 2000/s"),
            ("rate<2001", "rate: 2000.0/s, which is not at least 2001/s"),
            (
                "p99.9<1s",
                "p99.9: unknown, because it needs 10000 replies and there are 2000: measure for \
                 longer",
            ),
        ] {
            assert_eq!(broken(text), [said], "{text}");
        }
        assert_eq!(broken("p99<1ms,errors<1%,max<1s").len(), 2);
    }

    #[test]
    fn invalid_condition_says_what_to_write() {
        for (text, part) in [
            ("", "'': there is no < or >"),
            ("p99", "'p99': there is no < or >"),
            ("p99<5", "a time needs a unit: write 5ms"),
            ("p99<soon", "'soon' is not a time"),
            ("p100<5ms", "'p100' is not a figure: use p50"),
            ("speed<5", "'speed' is not a figure"),
            ("errors<few", "'few' is neither a number nor a percentage"),
            ("errors<-1", "'-1' is neither a number nor a percentage"),
            ("rate>fast", "'fast' is not a number"),
        ] {
            let error = text.parse::<Conditions>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn only_conditions_on_errors_allow_errors() {
        for (text, allow) in [("p99<1s", false), ("errors<1", true), ("rate>1,failed<1", true)] {
            assert_eq!(text.parse::<Conditions>().unwrap().allow_errors(), allow, "{text}");
        }
    }
}
