//! Durations as text.

use std::time::Duration;

/// Formats a duration roughly: `40 s`, `12 min`, `2 h 5 min`.
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
}
