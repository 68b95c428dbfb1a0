//! What was asked for, and what will be done.

use super::contenders::Contender;
use super::work::Style;
use crate::bench::pins::Pin;
use crate::bench::setup::{distinct, some_time};
use crate::output::Target;
use annulus_lab::nop::Entries;
use anyhow::Result;
use clap::Args;
use std::time::Duration;

/// The largest submission queue that the kernel gives.
pub(super) const MAX_ENTRIES: u32 = 32_768;

const EXPLAIN: &str = "\
Fills a queue of NOPs, submits them by one system call, takes every completion,
again and again. All contenders are processes on one core, visited in turn in
short slices, round after round, at each queue size; the first runs a second
time as a control.

A ratio is operations a second of CPU time over those of liburing used well (or
of the first contender, where liburing is not there), taken within each round:
the median, with its bootstrap 95 % interval.

Contenders:
  ring          our ring, nothing above it
  lookup        our ring, each completion's slot found by its token
  task          our runtime, a task woken for each completion
  liburing      C over liburing, completions taken as a batch
  liburing-one  C over liburing, completions peeked and marked one at a time
  io-uring      Rust over the io-uring crate

Examples:
  annulus bench nop                                     about a minute
  annulus bench nop --entries 1024 --contenders ring,liburing --rounds 40
  echo 1024 5 | perf record annulus bench nop --contender task";

/// Compare rings: NOPs a second by queue size
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct NopArgs {
    /// Entries of the queue: one number or several
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', default_value = "64,128,256,512,1024,2048,4096",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ENTRIES)))]
    entries: Vec<u32>,
    /// Who is measured
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "ring,lookup,task,liburing,liburing-one,io-uring"
    )]
    contenders: Vec<Contender>,
    /// How often each contender is visited at each size
    #[arg(long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// How long a visit is measured: seconds, or 50ms
    #[arg(long, value_name = "TIME", default_value = "0.05", value_parser = some_time)]
    seconds: Duration,
    #[command(flatten)]
    pin: Pin,
    /// Write everything as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Decides the order of visits and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure nothing, but be one of ours: answer lines of ENTRIES SECONDS on standard input
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub(super) contender: Option<Style>,
}

/// A comparison that can be carried out.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) contenders: Vec<Contender>,
    pub(super) cells: Vec<Entries>,
    pub(super) rounds: usize,
    pub(super) slice: Duration,
    /// The cores that may be used, and the one that will be.
    pub(super) allowed: Vec<usize>,
    pub(super) core: usize,
    pub(super) json: Option<Target>,
    pub(super) seed: u64,
}

impl Setup {
    /// Checks what was asked for.
    pub(super) fn new(args: NopArgs) -> Result<Setup> {
        let (allowed, core) = args.pin.choose()?;
        distinct(&args.contenders, |contender| format!("contender '{}'", contender.name()))?;
        distinct(&args.entries, |entries| format!("a queue of {entries}"))?;
        Ok(Setup {
            contenders: args.contenders,
            cells: args.entries.into_iter().map(Entries).collect(),
            rounds: args.rounds as usize,
            slice: args.seconds,
            allowed,
            core,
            json: args.json,
            seed: args.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::setup::tests::parsed;
    use crate::usage::Misuse;

    #[test]
    fn without_arguments_it_ends_within_a_minute_and_a_half() {
        let setup = Setup::new(parsed("").unwrap()).unwrap();
        let slices = (setup.contenders.len() + 1) * setup.cells.len() * setup.rounds;
        // A fifth to warm up, and 2 ms for a ring.
        let slice = setup.slice * 6 / 5 + Duration::from_millis(2);
        assert!(slice * slices as u32 <= Duration::from_secs(60), "{slices} slices");
        assert!(setup.rounds >= 15);
    }

    #[test]
    fn sizes_out_of_range_name_the_limit() {
        for line in
            ["--entries 0", "--entries 32769", "--entries 64,x", "--rounds 0", "--seconds 0"]
        {
            assert!(parsed::<NopArgs>(line).is_err(), "{line}");
        }
        let error = parsed::<NopArgs>("--entries 32769").unwrap_err().to_string();
        assert!(error.contains("32769") && error.contains("1..=32768"), "{error}");
    }

    #[test]
    fn twice_the_same_is_misuse() {
        for (line, part) in [
            ("--entries 64,64", "a queue of 64 is asked for twice"),
            ("--contenders ring,ring", "contender 'ring' is asked for twice"),
            ("--pin 9999", "--pin 9999: this process may use "),
        ] {
            let error = Setup::new(parsed(line).unwrap()).unwrap_err();
            assert!(error.is::<Misuse>() && error.to_string().contains(part), "{line}: {error}");
        }
    }
}
