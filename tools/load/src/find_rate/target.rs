//! The target that a rate has to meet.

use hdrhistogram::Histogram;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A percentile rests on at least so many responses beyond it.
const ENOUGH_BEYOND: f64 = 10.0;

/// The target of a rate: limits on response times, and on the share of requests that fail.
///
/// It is parsed from conditions with commas between them: `p99<1ms`, `p50<200us,p99.9<5ms`, `mean<1ms`, `max<1s`,
/// `p99<1ms,errors<0.1%`. Without a condition on errors, none may occur.
///
/// ```
/// use annulus_load::Target;
///
/// let target: Target = "p50<200us,p99.9<5ms".parse().unwrap();
/// assert_eq!(target.to_string(), "p50<200µs,p99.9<5ms");
/// assert_eq!(target.responses_needed(), 10_000, "ten lie beyond p99.9");
/// let error = "p99>1ms".parse::<Target>().unwrap_err().to_string();
/// assert!(error.contains("such as p99<1ms"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    limits: Vec<(Metric, Duration)>,
    /// The largest share of requests that may fail.
    errors: Option<f64>,
}

/// A figure of response times.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Percentile(f64),
    Mean,
    Max,
}

impl Metric {
    fn nanos(self, histogram: &Histogram<u64>) -> f64 {
        match self {
            Metric::Percentile(percent) => histogram.value_at_percentile(percent) as f64,
            Metric::Mean => histogram.mean(),
            Metric::Max => histogram.max() as f64,
        }
    }

    /// How many responses it rests on.
    fn responses_needed(self) -> f64 {
        match self {
            Metric::Percentile(percent) => ENOUGH_BEYOND / (1.0 - percent / 100.0),
            Metric::Mean | Metric::Max => ENOUGH_BEYOND,
        }
    }
}

impl Target {
    /// Responses that a window must have, so that each percentile rests on ten that lie beyond it.
    pub fn responses_needed(&self) -> u64 {
        let needed = self.limits.iter().map(|(metric, _)| metric.responses_needed());
        // Percentiles are decimal fractions, which are not exact here.
        (needed.fold(ENOUGH_BEYOND, f64::max) - 1e-6).ceil() as u64
    }

    /// The longest limit on a response time.
    pub(super) fn longest(&self) -> Duration {
        self.limits.iter().map(|(_, limit)| *limit).max().unwrap_or_default()
    }

    /// The condition that response times or failures miss; `None` if they meet all.
    pub(super) fn missed_by(&self, histogram: &Histogram<u64>, failed: u64) -> Option<String> {
        let share = failed as f64 / (histogram.len() + failed).max(1) as f64;
        if failed > 0 && self.errors.is_none_or(|most| share >= most) {
            return Some(format!("{:.2} % of the requests failed", share * 100.0));
        }
        let missed = self
            .limits
            .iter()
            .find(|(metric, limit)| metric.nanos(histogram) >= limit.as_nanos() as f64);
        missed.map(|(metric, _)| format!("{metric} was {:.1} µs", metric.nanos(histogram) / 1e3))
    }

    /// The figures that have limits, as text.
    pub(super) fn figures(&self, histogram: &Histogram<u64>) -> String {
        let figure =
            |(metric, _): &(Metric, _)| format!("{metric} {:.1} µs", metric.nanos(histogram) / 1e3);
        self.limits.iter().map(figure).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let mut target = Target { limits: Vec::new(), errors: None };
        for condition in text.split(',') {
            let error = |kind| TargetError { condition: condition.trim().into(), kind };
            let (metric, limit) = condition.split_once('<').ok_or_else(|| error(Kind::Form))?;
            let (metric, limit) = (metric.trim(), limit.trim_start_matches('=').trim());
            if metric == "errors" {
                target.errors = Some(parse_share(limit).map_err(error)?);
                continue;
            }
            let metric = parse_metric(metric).map_err(error)?;
            let limit = crate::schedule::parse_time(limit).map_err(|_| error(Kind::Time))?;
            if limit.is_zero() {
                return Err(error(Kind::Zero));
            }
            target.limits.push((metric, limit));
        }
        if target.limits.is_empty() {
            return Err(TargetError { condition: text.into(), kind: Kind::NoLatency });
        }
        Ok(target)
    }
}

fn parse_metric(text: &str) -> Result<Metric, Kind> {
    match text {
        "mean" => return Ok(Metric::Mean),
        "max" => return Ok(Metric::Max),
        _ => {}
    }
    let percent = text.strip_prefix('p').ok_or(Kind::Metric)?;
    let percent: f64 = percent.parse().map_err(|_| Kind::Metric)?;
    if percent > 0.0 && percent <= 99.9999 {
        Ok(Metric::Percentile(percent))
    } else {
        Err(Kind::Percentile)
    }
}

/// A share: `0.1%` or `0.001`.
fn parse_share(text: &str) -> Result<f64, Kind> {
    let (number, factor) =
        text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim(), 0.01));
    let share = number.parse::<f64>().map_err(|_| Kind::Share)? * factor;
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(Kind::Share) }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::Percentile(percent) => write!(f, "p{percent}"),
            Metric::Mean => f.write_str("mean"),
            Metric::Max => f.write_str("max"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (metric, limit)) in self.limits.iter().enumerate() {
            write!(f, "{}{metric}<{limit:?}", if number > 0 { "," } else { "" })?;
        }
        self.errors.map_or(Ok(()), |share| write!(f, ",errors<{}%", share * 100.0))
    }
}

/// A target that does not parse, or that says nothing: the condition, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError {
    condition: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Form,
    Metric,
    Percentile,
    Time,
    Zero,
    Share,
    NoLatency,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' ", self.condition)?;
        f.write_str(match self.kind {
            Kind::Form => "is no condition: write one such as p99<1ms",
            Kind::Metric => "names no figure: write p50, p99, p99.9, mean, max or errors, such as p99<1ms",
            Kind::Percentile => "is no percentile of a run: ask for more than p0 and at most p99.9999",
            Kind::Time => "has no time as its limit: write one with a unit, such as p99<1ms or p50<200us",
            Kind::Zero => "is met by nothing: a response takes more than no time, write a limit such as 1ms",
            Kind::Share => "has no share as its limit: write more than 0% and less than 100%, such as errors<0.1%",
            Kind::NoLatency => "has no limit on response times: add one, such as p99<1ms",
        })
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn targets_are_parsed_and_printed() {
        for (text, printed) in [
            ("p99<1ms", "p99<1ms"),
            (" p50 <= 0.5 , mean<2ms,max<1s", "p50<500ms,mean<2ms,max<1s"),
            ("p99.99<10ms,errors<0.5%", "p99.99<10ms,errors<0.5%"),
        ] {
            assert_eq!(target(text).to_string(), printed);
        }
        assert_eq!(target("p50<1s").responses_needed(), 20);
        assert_eq!(target("p50<1s,p99<1s").responses_needed(), 1000);
        assert_eq!(target("p99.999<1s").responses_needed(), 1_000_000);
        assert_eq!(target("max<1s").responses_needed(), 10);
    }

    #[test]
    fn senseless_targets_are_named_with_a_remedy() {
        for (text, part) in [
            ("", "'' is no condition: write one such as p99<1ms"),
            ("p99", "'p99' is no condition"),
            ("p99<1ms,", "'' is no condition"),
            ("q99<1ms", "'q99<1ms' names no figure"),
            ("p<1ms", "names no figure"),
            ("p0<1ms", "ask for more than p0"),
            ("p100<1ms", "at most p99.9999"),
            ("pNaN<1ms", "is no percentile"),
            ("p99<fast", "has no time"),
            ("p99<-1ms", "has no time"),
            ("p99<0", "is met by nothing"),
            ("p99<1ms,errors<100%", "less than 100%"),
            ("errors<1%", "has no limit on response times"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_missed_is_named() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=1000).for_each(|n| histogram.record(n * 1000).unwrap());
        let missed = |text, failed| target(text).missed_by(&histogram, failed);
        assert_eq!(missed("p50<501us,p99<992us,max<1001us,mean<501us", 0), None);
        assert_eq!(missed("p50<499us", 0).as_deref(), Some("p50 was 500.2 µs"));
        assert!(missed("p50<1ms,mean<1us", 0).unwrap().starts_with("mean was 500"));
        assert_eq!(missed("p50<1ms", 10).as_deref(), Some("0.99 % of the requests failed"));
        assert_eq!(missed("p50<1ms,errors<1%", 10), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,20}|p?[0-9.]{0,4}<?[0-9a-z%.]{0,5}") {
            let _ = text.parse::<Target>();
        }
    }
}
