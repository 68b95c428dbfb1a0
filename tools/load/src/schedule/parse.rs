//! Parsing of rates and think times.

use super::{Rate, ThinkTime};
use crate::invalid::{InvalidValue, invalid};
use std::str::FromStr;
use std::time::Duration;

fn error(text: &str, what: &str) -> InvalidValue {
    invalid(format!("'{text}' {what}"))
}

/// Parses a number of requests, or of requests per second: `500`, `0.5`, `10k`, `1.5M`, with or
/// without `/s`.
///
/// # Errors
/// Fails if the text is not such a number.
///
/// ```
/// assert_eq!(annulus_load::parse_number("1.5k"), Ok(1500.0));
/// assert!(annulus_load::parse_number("fast").is_err());
/// ```
pub fn parse_number(text: &str) -> Result<f64, InvalidValue> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (digits, factor) = match number.char_indices().last() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'm' | 'M')) => (&number[..at], 1e6),
        _ => (number, 1.0),
    };
    let value = digits.parse::<f64>().ok().filter(|value| value.is_finite());
    // `f64::from_str` also accepts "inf" and "nan", which the filter has removed.
    value
        .map(|value| value * factor)
        .ok_or_else(|| error(text, "is not a number: write 500, 10k or 1.5M"))
}

/// Parses a time: seconds, or with a unit (`250ms`, `30s`, `2m`, `1.5h`).
pub(crate) fn parse_time(text: &str) -> Result<Duration, InvalidValue> {
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
        error(
            text,
            "is not a time: write seconds, such as 10 or 0.5, or a unit: 250ms, 30s, 2m, 1.5h",
        )
    })
}

impl FromStr for Rate {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Rate, InvalidValue> {
        parse_number(text).map(Rate::constant)
    }
}

/// Parses `10ms`, `5ms..20ms` or `exp:10ms`.
impl FromStr for ThinkTime {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<ThinkTime, InvalidValue> {
        if let Some(mean) = text.strip_prefix("exp:") {
            return parse_time(mean).map(ThinkTime::Exponential);
        }
        let Some((least, most)) = text.split_once("..") else {
            return parse_time(text).map(ThinkTime::Fixed);
        };
        let (least, most) = (parse_time(least)?, parse_time(most)?);
        if least > most {
            return Err(error(text, "ends before it starts: write the shorter time first"));
        }
        Ok(ThinkTime::Uniform(least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_parsed() {
        for (text, rate) in [
            ("500", Rate::constant(500.0)),
            ("10k", Rate::constant(10_000.0)),
            ("1.5M/s", Rate::constant(1_500_000.0)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
    }

    #[test]
    fn think_times_are_parsed() {
        let ms = Duration::from_millis;
        assert_eq!("0.5".parse(), Ok(ThinkTime::Fixed(ms(500))));
        assert_eq!("100us..1ms".parse(), Ok(ThinkTime::Uniform(Duration::from_micros(100), ms(1))));
        assert_eq!("exp:2ms".parse(), Ok(ThinkTime::Exponential(ms(2))));
    }

    #[test]
    fn parse_error_contains_the_text_and_a_remedy() {
        for (text, parts) in [
            ("", ["''", "write 500"]),
            ("fast", ["'fast'", "10k"]),
            ("inf", ["'inf'", "10k"]),
            ("1k,2k", ["'1k,2k'", "10k"]),
        ] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
        for text in ["", "soon", "-1s", "5ms..1ms", "exp:", "1e99h"] {
            let error = text.parse::<ThinkTime>().unwrap_err().to_string();
            assert!(error.contains('\'') && error.contains(": write"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_any_text_never_panics(text in "[0-9a-z.,:µ/ -]{0,12}|\\PC{0,12}") {
            let _ = (text.parse::<Rate>(), text.parse::<ThinkTime>());
        }
    }
}
