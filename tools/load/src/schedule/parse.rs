//! Rates and think times as text.

use super::{Rate, Think};
use std::str::FromStr;
use std::time::Duration;

/// A rate or a think time that does not parse: the text, what is wrong with it, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleTextError(String);

fn error(text: &str, what: &str) -> ScheduleTextError {
    ScheduleTextError(format!("'{text}' {what}"))
}

/// Parses a number of requests or of requests a second: `500`, `0.5`, `10k`, `1.5M`, with or without `/s`.
///
/// # Errors
/// If it is no such number.
///
/// ```
/// assert_eq!(annulus_load::parse_number("1.5k"), Ok(1500.0));
/// assert!(annulus_load::parse_number("fast").is_err());
/// ```
pub fn parse_number(text: &str) -> Result<f64, ScheduleTextError> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (digits, factor) = match number.char_indices().last() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'm' | 'M')) => (&number[..at], 1e6),
        _ => (number, 1.0),
    };
    let value = digits.parse::<f64>().ok().filter(|value| value.is_finite());
    // "inf", "nan" and "1e5" are numbers to the standard library; the last of them is one here, too.
    value
        .map(|value| value * factor)
        .ok_or_else(|| error(text, "is not a number: write 500, 10k or 1.5M"))
}

/// Parses a time: seconds, or with a unit (`250ms`, `30s`, `2m`).
pub(crate) fn parse_time(text: &str) -> Result<Duration, ScheduleTextError> {
    let units = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let split = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) = split.unwrap_or((text, &1.0));
    let seconds = number.parse::<f64>().ok().map(|number| number * factor);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| {
        error(text, "is not a time: write seconds, such as 10 or 0.5, or a unit: 250ms, 30s, 2m")
    })
}

/// The course and the time of `COURSE:TIME`.
fn split_time(text: &str) -> Result<(&str, Option<Duration>), ScheduleTextError> {
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((course, time)) => match parse_time(time)? {
            Duration::ZERO => Err(error(text, "takes no time: write more, such as :10s")),
            time => Ok((course, Some(time))),
        },
    }
}

/// `10k`, `1k,2k,5k:10s` (each for 10 s) or `1k..50k:30s`.
impl FromStr for Rate {
    type Err = ScheduleTextError;

    fn from_str(text: &str) -> Result<Rate, ScheduleTextError> {
        Rate::parse_within(text, None)
    }
}

impl Rate {
    /// Parses a rate; steps and ramps without a time take all of `length`.
    ///
    /// # Errors
    /// If it is no rate, or if it needs a time and there is none.
    ///
    /// ```
    /// use annulus_load::Rate;
    /// use std::time::Duration;
    ///
    /// let rate = Rate::parse_within("1k,2k", Some(Duration::from_secs(60))).unwrap();
    /// assert_eq!(rate, "1k,2k:30s".parse().unwrap());
    /// assert!("1k,2k".parse::<Rate>().unwrap_err().to_string().contains("such as 1k,2k:10s"));
    /// ```
    pub fn parse_within(text: &str, length: Option<Duration>) -> Result<Rate, ScheduleTextError> {
        let (course, time) = split_time(text)?;
        let no_time = || error(text, &format!("has no time: add one, such as {text}:10s"));
        if let Some((from, to)) = course.split_once("..") {
            let length = time.or(length).ok_or_else(no_time)?;
            return Ok(Rate::ramp(parse_number(from)?, parse_number(to)?, length));
        }
        let rates = course.split(',').map(parse_number).collect::<Result<Vec<_>, _>>()?;
        match (rates.as_slice(), time) {
            (&[rate], None) => Ok(Rate::constant(rate)),
            (rates, time) => {
                let shared = || length.map(|length| length / rates.len() as u32);
                Ok(Rate::steps(rates, time.or_else(shared).ok_or_else(no_time)?))
            }
        }
    }
}

/// `10ms`, `5ms..20ms` or `exp:10ms`.
impl FromStr for Think {
    type Err = ScheduleTextError;

    fn from_str(text: &str) -> Result<Think, ScheduleTextError> {
        if let Some(mean) = text.strip_prefix("exp:") {
            return parse_time(mean).map(Think::Exponential);
        }
        let Some((least, most)) = text.split_once("..") else {
            return parse_time(text).map(Think::Fixed);
        };
        let (least, most) = (parse_time(least)?, parse_time(most)?);
        if least > most {
            return Err(error(text, "ends before it begins: write the shorter time first"));
        }
        Ok(Think::Uniform(least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rates_are_parsed() {
        for (text, rate) in [
            ("500", Rate::constant(500.0)),
            ("10k", Rate::constant(10_000.0)),
            ("1.5M/s", Rate::constant(1_500_000.0)),
            ("1k,2k,5k:10s", Rate::steps(&[1000.0, 2000.0, 5000.0], 10 * SECOND)),
            ("1k:10s", Rate::steps(&[1000.0], 10 * SECOND)),
            ("0..50k:2m", Rate::ramp(0.0, 50_000.0, 120 * SECOND)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        let ramp = Rate::parse_within("1..9", Some(4 * SECOND));
        assert_eq!(ramp, Ok(Rate::ramp(1.0, 9.0, 4 * SECOND)));
    }

    #[test]
    fn think_times_are_parsed() {
        let ms = Duration::from_millis;
        assert_eq!("0.5".parse(), Ok(Think::Fixed(ms(500))));
        assert_eq!("100us..1ms".parse(), Ok(Think::Uniform(Duration::from_micros(100), ms(1))));
        assert_eq!("exp:2ms".parse(), Ok(Think::Exponential(ms(2))));
    }

    #[test]
    fn what_does_not_parse_is_named_with_a_remedy() {
        for (text, parts) in [
            ("", ["''", "write 500"]),
            ("fast", ["'fast'", "10k"]),
            ("1k,,2k:1s", ["''", "10k"]),
            ("inf", ["'inf'", "10k"]),
            ("1k,2k", ["'1k,2k' has no time", "1k,2k:10s"]),
            ("1..2", ["has no time", "1..2:10s"]),
            ("1..2:x", ["'x'", "250ms"]),
            ("1..2:0s", ["takes no time", ":10s"]),
        ] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
        for text in ["", "soon", "-1s", "5ms..1ms", "exp:", "1e99h"] {
            let error = text.parse::<Think>().unwrap_err().to_string();
            assert!(error.contains('\'') && error.contains(": write"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-z.,:µ/ -]{0,12}|\\PC{0,12}") {
            let _ = (text.parse::<Rate>(), text.parse::<Think>());
        }
    }
}
