//! Options of a run that is one of several on different machines.

use crate::address::Address;
use crate::duration;
use annulus_load::clock;
use annulus_load::recording::ClockReading;
use annulus_load::reference_clock;
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use std::time::Duration;

/// How long to wait for each answer of the other clock.
const PATIENCE: Duration = Duration::from_secs(2);

/// Options of a run that is one of several on different machines.
#[derive(Args, Debug)]
#[command(next_help_heading = "Several machines")]
pub(super) struct TogetherArgs {
    /// Begin to measure at this time: RFC 3339, seconds since 1970, or a time
    /// from now such as +10s; clients connect and warm up before
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) start_at: Option<Duration>,
    /// Compare the clock with that of an NTP server, or of annulus load clock
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_reference)]
    clock: Option<Address>,
}

impl TogetherArgs {
    /// Which options were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 2] {
        [("--start-at", self.start_at.is_some()), ("--clock", self.clock.is_some())]
    }

    /// Compares the clocks, if that was asked for.
    pub(super) fn compare_clocks(&self) -> Result<Option<ClockReading>> {
        let Some(reference) = &self.clock else { return Ok(None) };
        let reading = reference_clock::compare(reference.resolve()?[0], PATIENCE)?;
        Ok(Some(ClockReading { reference: reference.to_string(), ..reading }))
    }
}

/// The port of NTP, unless another one is named.
fn parse_reference(text: &str) -> Result<Address, String> {
    text.parse().or_else(|error| format!("{text}:123").parse().map_err(|_: String| error))
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

    #[test]
    fn the_port_of_a_reference_is_that_of_ntp() {
        for (text, wanted) in
            [("ntp.example:1123", "ntp.example:1123"), ("10.0.0.1", "10.0.0.1:123")]
        {
            assert_eq!(parse_reference(text).map(|address| address.to_string()), Ok(wanted.into()));
        }
        assert!(parse_reference("").is_err());
    }
}
