//! Options shared by several `annulus bench` commands.

use crate::usage::UsageError;
use annulus_lab::cores::Cores;
pub(crate) use annulus_load::parse_bytes as bytes;
use annulus_load::{affinity, parse_cpu, parse_duration};
use anyhow::{Context, Result};
use clap::Args;
use std::time::Duration;

/// A core for the servers and one for the load, and whether cores may sleep.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Pins {
    /// The core of the servers [default: the first that this process may use]
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    server_pin: Option<usize>,
    /// The core of the load [default: one that shares nothing with the core of the servers]
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    load_pin: Option<usize>,
    /// Keep all cores from sleeping during the measurement (as root; on a virtual machine only if it
    /// uses haltpoll), since waking one costs CPU time that varies
    #[arg(long)]
    awake: bool,
}

impl Pins {
    /// Fills in the cores that were not given. A core that this process may not use is a usage
    /// error.
    pub(crate) fn choose(self) -> Result<Cores> {
        let cores = choose(("--server-pin", self.server_pin), ("--load-pin", self.load_pin))?;
        Ok(Cores { are_awake: self.awake, ..cores })
    }
}

fn choose(server: (&str, Option<usize>), load: (&str, Option<usize>)) -> Result<Cores> {
    let allowed = affinity::allowed().context("cannot read the allowed cores")?;
    for (option, pin) in [server, load] {
        if let Some(core) = pin.filter(|core| !allowed.contains(core)) {
            let list = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            return Err(UsageError(format!(
                "{option} {core} is not allowed: this process may use {list}"
            ))
            .into());
        }
    }
    Ok(Cores::choose(&allowed, server.1, load.1))
}

/// The maximum number of rounds with `--precision`, unless `--rounds-max` or `--rounds` gives more.
const MAX_ROUNDS: u64 = 100;

/// Returns the maximum number of rounds with `--precision`. A given one below `--rounds` is a usage
/// error.
pub(crate) fn max_rounds(rounds: Option<u64>, most: Option<u64>) -> Result<u64, UsageError> {
    let least = rounds.unwrap_or(1);
    match most {
        Some(most) if most < least => Err(UsageError(format!(
            "--rounds-max {most} is below the {least} of --rounds: raise it, or lower --rounds"
        ))),
        most => Ok(most.unwrap_or(MAX_ROUNDS.max(least))),
    }
}

/// Parses a pattern of `--only`.
pub(crate) fn parse_pattern(text: &str) -> Result<String, String> {
    match text {
        "" | "/" => Err("write CONTENDER/CELL, CONTENDER or /CELL".into()),
        _ => Ok(text.to_owned()),
    }
}

/// Parses a duration that is not zero.
pub(crate) fn parse_nonzero_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("the time must be above zero: write 0.3 or 300ms".into()),
        time => Ok(time),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Command;

    #[test]
    fn maximum_of_rounds_is_not_below_their_number() {
        let found = [(None, None), (Some(200), None), (Some(5), Some(5)), (None, Some(3))];
        let found = found.map(|(rounds, most)| max_rounds(rounds, most).ok());
        assert_eq!(found, [Some(100), Some(200), Some(5), Some(3)]);
        let error = max_rounds(Some(20), Some(5)).expect_err("fewer rounds were accepted");
        assert!(error.to_string().contains("--rounds-max 5 is below the 20 of --rounds"));
    }

    #[test]
    fn empty_pattern_is_refused() {
        assert!(["", "/"].iter().all(|text| parse_pattern(text).is_err()));
        assert_eq!(parse_pattern("uring/50x*"), Ok("uring/50x*".into()));
    }

    pub(crate) fn parsed<A: Args>(line: &str) -> Result<A, clap::Error> {
        let verb = A::augment_args(Command::new("verb").no_binary_name(true));
        A::from_arg_matches(&verb.try_get_matches_from(line.split_whitespace())?)
    }

    /// Asserts that `outcome` is a usage error whose text contains `part`.
    #[track_caller]
    pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T>, part: &str) {
        let error = outcome.expect_err(part);
        assert!(error.is::<UsageError>() && error.to_string().contains(part), "{part}: {error}");
    }
}
