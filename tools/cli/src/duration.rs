//! Durations on the command line: seconds, or a number with a unit.

use jiff::SignedDuration;
use std::time::Duration;

/// The longest duration of any option: thirty days.
const LONGEST: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Parses `10`, `0.5`, `250ms`, `30s`, `2m` or `1h 30m`; a bare number is in seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let duration = match text.parse() {
        Ok(seconds) => SignedDuration::try_from_secs_f64(seconds).ok(),
        Err(_) => text.parse().ok(),
    };
    let duration: SignedDuration = duration
        .ok_or("not a time: write seconds, such as 10 or 0.5, or a unit: 250ms, 30s, 2m, 1h")?;
    if !(SignedDuration::ZERO..=LONGEST).contains(&duration) {
        return Err("outside 0 to 30 days".to_owned());
    }
    Ok(duration.unsigned_abs())
}

/// A rough duration: `40 s`, `12 min`, `2 h 5 min`.
pub(crate) fn shown(time: Duration) -> String {
    let minutes = (time.as_secs() + 30) / 60;
    match (time.as_secs(), minutes / 60, minutes % 60) {
        (seconds @ 0..90, ..) => format!("{seconds} s"),
        (_, 0, minutes) => format!("{minutes} min"),
        (_, hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rough_duration_has_two_units_at_most() {
        let shown = [0, 89, 90, 600, 3599, 7500].map(|s| super::shown(Duration::from_secs(s)));
        assert_eq!(shown, ["0 s", "89 s", "2 min", "10 min", "1 h 0 min", "2 h 5 min"]);
    }

    #[test]
    fn units() {
        for (text, millis) in [
            ("10", 10_000),
            ("0.5", 500),
            ("250ms", 250),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused_with_a_remedy() {
        for text in ["", "ten", "1x", "NaN"] {
            assert!(parse(text).unwrap_err().contains("write seconds, such as 10"), "{text}");
        }
        for text in ["-1", "-1s", "1e9", "1000h"] {
            assert_eq!(parse(text).unwrap_err(), "outside 0 to 30 days", "{text}");
        }
    }
}
