//! The lab's only look at the calendar: the time of day that a result carries.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in UTC, as `2026-11-20T10:04:05Z`.
pub(crate) fn utc_now() -> String {
    #[allow(clippy::disallowed_methods)] // The one clock of this crate.
    let now = SystemTime::now();
    utc(now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn utc(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day counted from 1 January 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let mut month = 0;
    while days >= length(year, month) {
        days -= length(year, month);
        month += 1;
    }
    (year, month + 1, days + 1)
}

fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)))
}

fn length(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + leap(year),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_168_245), "2026-11-20T09:50:45Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
