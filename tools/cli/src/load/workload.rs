//! When the clients of `annulus load` send, and how much.

use crate::size;
use crate::usage::{UsageError, only_with};
use annulus_load::{Arrivals, MAX_LENGTH, Rate, RateSearch, Schedule, Target, Think};
use clap::Args;
use std::time::Duration;

/// How long to measure unless the command line says so.
pub(super) const DURATION: Duration = Duration::from_secs(60);

/// Bytes per message.
const LENGTH: usize = 512;

/// Options of the workload.
#[derive(Args, Debug)]
pub(super) struct WorkloadArgs {
    /// Bytes per message, up to 64 MiB: 128, 16K [default: 512]
    #[arg(short, long, value_name = "BYTES", value_parser = length)]
    length: Option<usize>,
    /// Requests a second over all clients, whatever the server does (an open
    /// loop): 500, 10k [default: as fast as replies arrive, a closed loop]
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<Rate>,
    /// Search for the highest rate that meets a target within -t: p99<1ms, or
    /// several, p50<200us,p99.9<5ms,errors<0.1%
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["rate", "think", "per_connection", "warm_up"])]
    find_rate: Option<Target>,
    /// With --rate or --find-rate: at equal distances (constant), as from many
    /// independent users (poisson), or what is due within each TIME together
    /// at its end (burst:1ms), which takes less CPU [default: constant]
    #[arg(long, value_name = "constant|poisson|burst:TIME")]
    arrivals: Option<Arrivals>,
    /// Without --rate: the time between a reply and the next request: 10ms,
    /// 5ms..20ms (uniform), or exp:10ms (exponential, with this mean)
    #[arg(long, value_name = "TIME", conflicts_with = "rate")]
    think: Option<Think>,
}

fn length(text: &str) -> Result<usize, String> {
    match size::bytes(text)? {
        bytes if (1..=MAX_LENGTH as u64).contains(&bytes) => Ok(bytes as usize),
        bytes => Err(format!("{bytes} bytes a message: ask for 1 to {MAX_LENGTH}")),
    }
}

impl WorkloadArgs {
    /// Bytes per message.
    pub(super) fn length(&self) -> usize {
        self.length.unwrap_or(LENGTH)
    }

    /// Whether a length was given.
    pub(super) fn has_length(&self) -> bool {
        self.length.is_some()
    }

    /// Whether a rate is searched for.
    pub(super) fn is_search(&self) -> bool {
        self.find_rate.is_some()
    }

    /// The search for a rate, if one is asked for.
    pub(super) fn search(&self, duration: Option<Duration>) -> Option<RateSearch> {
        let (arrivals, time) = (self.arrivals.unwrap_or_default(), duration.unwrap_or(DURATION));
        let target = self.find_rate.clone()?;
        Some(RateSearch { target, arrivals, time })
    }

    /// The schedule.
    pub(super) fn schedule(&self) -> Result<Schedule, UsageError> {
        let open = self.rate.is_some() || self.find_rate.is_some();
        only_with("--rate or --find-rate", open, &[("--arrivals", self.arrivals.is_some())])?;
        Ok(match self.rate {
            None => Schedule::Closed { think: self.think.unwrap_or_default() },
            Some(rate) => Schedule::Open { rate, arrivals: self.arrivals.unwrap_or_default() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[allow(dead_code, reason = "some options are only named by others")]
    struct Command {
        #[command(flatten)]
        workload: WorkloadArgs,
        /// Only named, by the options of the workload.
        #[arg(long)]
        per_connection: bool,
        #[arg(long)]
        warm_up: bool,
    }

    fn schedule(args: &[&str]) -> Result<Schedule, String> {
        let args = ["load"].iter().chain(args);
        let command = Command::try_parse_from(args).map_err(|error| error.to_string())?;
        command.workload.schedule().map_err(|error| error.to_string())
    }

    #[test]
    fn a_loop_is_closed_or_has_a_rate() {
        for (args, text) in [
            (&[][..], "closed loop"),
            (&["--think", "exp:1s"], "closed loop, think time exponential with a mean of 1s"),
            (&["--rate", "10k"], "10000 a second"),
            (&["--rate", "2", "--arrivals", "poisson"], "2 a second, Poisson arrivals"),
            (&["--rate", "5k", "--arrivals", "burst:1ms"], "5000 a second, in bursts every 1ms"),
        ] {
            assert_eq!(schedule(args).unwrap().to_string(), text);
        }
    }

    #[test]
    fn options_that_do_nothing_are_refused() {
        for (args, parts) in [
            (&["--arrivals", "poisson"][..], ["--arrivals does nothing", "--rate"]),
            (&["--rate", "1", "--think", "1s"], ["--think", "--rate"]),
            (&["--rate", "1", "--arrivals", "burst:0"], ["bursts every 0ns", "at most 1s"]),
            (&["--rate", "fast"], ["--rate", "'fast' is not a number: write 500, 10k"]),
            (&["--length", "0"], ["0 bytes a message", "1 to 67108864"]),
        ] {
            let error = schedule(args).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
