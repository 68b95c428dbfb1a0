//! Lengths of time on the command line: seconds, or a number with a unit.

use std::time::Duration;

/// The longest time anything here can be told to take: thirty days.
const LONGEST: f64 = 30.0 * 86_400.0;

/// Reads `10`, `0.5`, `250ms`, `30s` or `2m`; a bare number is in seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("no unit '{unit}': use ms, s, m or h")),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| "not a time: write 10, 0.5, 250ms, 30s or 2m".to_owned())?
        * scale;
    if !(0.0..=LONGEST).contains(&seconds) {
        return Err("outside 0 to 30 days".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, millis) in [
            ("10", 10_000),
            ("0.5", 500),
            ("250ms", 250),
            ("30s", 30_000),
            ("2m", 120_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_way_out() {
        for (text, part) in [
            ("", "write 10"),
            ("ten", "no unit"),
            ("1x", "no unit 'x'"),
            ("-1", "outside"),
            ("1e9", "no unit"),
            ("1000h", "outside"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
