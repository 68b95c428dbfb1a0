//! Options shared by several `annulus bench` commands.

use annulus_lab::cores::Cores;
pub(crate) use annulus_load::parse_bytes as bytes;
use annulus_load::{affinity, parse_duration};
use anyhow::{Context, Result};
use clap::Args;
use std::time::Duration;

/// How the cores are used.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct CoreArgs {
    /// Keep all cores from sleeping during the measurement (as root; on a virtual machine only if it
    /// uses haltpoll), since waking one costs CPU time that varies
    #[arg(long)]
    awake: bool,
}

impl CoreArgs {
    /// Chooses a core for the servers and one for the load.
    pub(crate) fn choose(self) -> Result<Cores> {
        let allowed = affinity::allowed().context("cannot read the allowed cores")?;
        Ok(Cores { are_awake: self.awake, ..Cores::choose(&allowed) })
    }
}

/// The maximum number of rounds with `--precision`, unless `--rounds` is more.
const MAX_ROUNDS: u64 = 100;

/// Returns the maximum number of rounds with `--precision`.
pub(crate) fn max_rounds(rounds: Option<u64>) -> u64 {
    MAX_ROUNDS.max(rounds.unwrap_or(1))
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
    use crate::usage::UsageError;
    use clap::{Args, Command};

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
