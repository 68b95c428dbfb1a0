//! Options of a run that is one of several on different machines.

use crate::duration;
use annulus_load::clock;
use clap::Args;
use jiff::Timestamp;
use std::time::Duration;

/// Options of a run that is one of several on different machines.
#[derive(Args, Debug)]
#[command(next_help_heading = "Several machines")]
pub(super) struct TogetherArgs {
    /// Begin to measure at this time: RFC 3339, seconds since 1970, or a time
    /// from now such as +10s; clients connect and warm up before
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) start_at: Option<Duration>,
}

impl TogetherArgs {
    /// Which options were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 1] {
        [("--start-at", self.start_at.is_some())]
    }
}

/// A point in time, as the time since the epoch.
fn parse(text: &str) -> Result<Duration, String> {
    if let Some(from_now) = text.strip_prefix('+') {
        return Ok(clock::unix() + duration::parse(from_now)?);
    }
    if let Ok(seconds) = text.parse() {
        let wrong = |_| format!("{text} seconds since 1970 are out of range");
        return Duration::try_from_secs_f64(seconds).map_err(wrong);
    }
    let time: Timestamp = text.parse().map_err(|_| {
        "not a time: write 2026-01-31T12:00:00Z, seconds since 1970, or +10s".to_owned()
    })?;
    Duration::try_from(time.as_duration()).map_err(|_| "before 1970".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_from_now() {
        let seconds = Duration::from_secs;
        assert_eq!(parse("1970-01-02T00:00:00Z"), Ok(seconds(86_400)));
        assert_eq!(parse("1970-01-02T02:00:00.5+02:00"), Ok(seconds(86_400) + seconds(1) / 2));
        assert_eq!(parse("1700000000.25"), Ok(seconds(1_700_000_000) + seconds(1) / 4));
        let (before, then) = (clock::unix(), parse("+1h").unwrap());
        assert!((before..=clock::unix()).contains(&(then - seconds(3600))));
    }

    #[test]
    fn what_is_no_time_is_refused_with_a_remedy() {
        for (text, part) in [
            ("tomorrow", "write 2026-01-31T12:00:00Z"),
            ("12:00", "seconds since 1970, or +10s"),
            ("+soon", "write seconds, such as 10"),
            ("-5", "out of range"),
            ("NaN", "out of range"),
            ("1960-01-01T00:00:00Z", "before 1970"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
