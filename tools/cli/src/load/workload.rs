//! When the clients of `annulus load` send, and how much.

use crate::usage::{UsageError, only_with};
use annulus_load::{Arrivals, Rate, RateSearch, Schedule, Sizes, SizesError, Target, Think};
use clap::Args;
use std::time::Duration;

/// How long to measure unless the command line or a course of rates says so.
pub(super) const DURATION: Duration = Duration::from_secs(60);

/// Bytes per message.
const LENGTH: usize = 512;

/// Options of the workload.
#[derive(Args, Debug)]
pub(super) struct WorkloadArgs {
    /// Bytes per message, up to 64 MiB: 512, 16K, 100..2000 (each as likely),
    /// or @FILE with a size on each line (each line as likely) [default: 512]
    #[arg(short, long, value_name = "BYTES", value_parser = sizes)]
    length: Option<Sizes>,
    /// Requests a second over all clients, whatever the server does (an open
    /// loop): 10k; in steps, 1k,2k,5k:10s (each 10 s); rising, 1k..50k:30s.
    /// Without a time, steps and ramps take all of -t [default: as fast as
    /// replies arrive, a closed loop]
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<String>,
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

fn sizes(text: &str) -> Result<Sizes, SizesError> {
    text.parse()
}

impl WorkloadArgs {
    /// The sizes of messages.
    pub(super) fn sizes(&self) -> Sizes {
        self.length.clone().unwrap_or(Sizes::Fixed(LENGTH))
    }

    /// Whether sizes were given.
    pub(super) fn has_sizes(&self) -> bool {
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

    /// The schedule, and how long to measure: as long as `duration` says, else as the course of the rate takes.
    pub(super) fn schedule(
        &self,
        duration: Option<Duration>,
    ) -> Result<(Schedule, Duration), UsageError> {
        let open = self.rate.is_some() || self.find_rate.is_some();
        only_with("--rate or --find-rate", open, &[("--arrivals", self.arrivals.is_some())])?;
        let Some(rate) = &self.rate else {
            let think = self.think.unwrap_or_default();
            return Ok((Schedule::Closed { think }, duration.unwrap_or(DURATION)));
        };
        let parsed = Rate::parse_within(rate, Some(duration.unwrap_or(DURATION)));
        let course = parsed.map_err(|error| UsageError(format!("--rate {rate}: {error}")))?;
        let length = course.length();
        if let Some(duration) = duration.filter(|&duration| duration < length) {
            return Err(UsageError(format!(
                "--rate {rate} takes {length:?}, longer than the {duration:?} of -t: leave -t out, or shorten the steps"
            )));
        }
        let arrivals = self.arrivals.unwrap_or_default();
        let measured = if length.is_zero() { DURATION } else { length };
        Ok((Schedule::Open { rate: course, arrivals }, duration.unwrap_or(measured)))
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

    fn schedule(args: &[&str], duration: Option<u64>) -> Result<(Schedule, Duration), String> {
        let args = ["load"].iter().chain(args);
        let command = Command::try_parse_from(args).map_err(|error| error.to_string())?;
        let parsed = command.workload.schedule(duration.map(Duration::from_secs));
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn a_course_of_rates_says_how_long_to_measure() {
        for (args, duration, text, seconds) in [
            (&[][..], None, "closed loop", 60),
            (
                &["--think", "exp:1s"],
                Some(5),
                "closed loop, think time exponential with a mean of 1s",
                5,
            ),
            (&["--rate", "10k"], None, "10000 a second", 60),
            (&["--rate", "1,2:3s"], None, "1 a second for 3s, then 2 a second for 3s", 6),
            (
                &["--rate", "1..2", "--arrivals", "poisson"],
                Some(8),
                "1 to 2 a second in 8s, Poisson arrivals",
                8,
            ),
            (&["--rate", "1..2:3s"], Some(8), "1 to 2 a second in 3s", 8),
            (
                &["--rate", "5k", "--arrivals", "burst:1ms"],
                Some(8),
                "5000 a second, in bursts every 1ms",
                8,
            ),
        ] {
            let (schedule, measured) = schedule(args, duration).unwrap();
            assert_eq!((schedule.to_string().as_str(), measured.as_secs()), (text, seconds));
        }
    }

    #[test]
    fn options_that_do_nothing_are_refused() {
        for (args, parts) in [
            (&["--arrivals", "poisson"][..], ["--arrivals does nothing", "--rate"]),
            (&["--rate", "1", "--think", "1s"], ["--think", "--rate"]),
            (&["--rate", "1,2:6s"], ["takes 12s", "10s of -t"]),
            (&["--rate", "1", "--arrivals", "burst:0"], ["bursts every 0ns", "at most 1s"]),
            (&["--rate", "fast"], ["--rate fast: 'fast'", "10k"]),
            (&["--length", "0"], ["0 is no valid number", "1 to 67108864"]),
        ] {
            let error = schedule(args, Some(10)).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
