//! Options shared by several `annulus bench` commands.

use crate::usage::UsageError;
use annulus_lab::cores::Cores;
pub(crate) use annulus_load::parse_bytes as bytes;
use annulus_load::{affinity, parse_cpu, parse_duration};
use anyhow::{Context, Result};
use clap::Args;
use std::time::Duration;

/// A core for the servers and one for the load.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Pins {
    /// The core of the servers [default: the first that this process may use]
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    server_pin: Option<usize>,
    /// The core of the load [default: one that shares nothing with the core of the servers]
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    load_pin: Option<usize>,
}

impl Pins {
    /// Fills in the cores that were not given. A core that this process may not use is a usage
    /// error.
    pub(crate) fn choose(self) -> Result<Cores> {
        choose(("--server-pin", self.server_pin), ("--load-pin", self.load_pin))
    }
}

/// Refuses options that have been renamed, and says what they are called now.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RenamedOptions {
    #[arg(long, hide = true, value_name = "COUNT,…",
          value_parser = |_: &str| renamed("-c (--connections)"))]
    clients: Option<String>,
    #[arg(long, hide = true, value_name = "TIME",
          value_parser = |_: &str| renamed("-d (--duration)"))]
    seconds: Option<String>,
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

fn renamed(now: &str) -> Result<String, String> {
    Err(format!("it is {now} now"))
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
