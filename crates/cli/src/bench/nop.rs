//! `annulus bench nop`: how many operations a second a ring gets through.

use super::args::{Pin, some_time};
use super::run::{OutputArgs, compare, peers};
use annulus_lab::bench::{Plan, Rounds};
use annulus_lab::distinct;
use annulus_lab::nop::{self, CONTENDERS, MAX_ENTRIES, Setup, Style};
use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::process::ExitCode;
use std::time::Duration;

const EXPLAIN: &str = "\
Fills a queue of NOPs, submits them by one system call, takes every completion,
again and again. All contenders are processes on one core, measured in turn in
short slices, round after round, at each queue size; the first runs a second
time as a control.

A ratio is operations a second of CPU time over those of liburing used well (or
of the first contender, without liburing), taken within each round: the median,
with its bootstrap 95 % interval.

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
    /// What is measured
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "ring,lookup,task,liburing,liburing-one,io-uring",
        value_parser = PossibleValuesParser::new(CONTENDERS.map(|known| known.name))
    )]
    contenders: Vec<String>,
    /// How often each contender is measured at each size
    #[arg(long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// How long a slice is measured: seconds, or 50ms
    #[arg(long, value_name = "TIME", default_value = "0.05", value_parser = some_time)]
    seconds: Duration,
    #[command(flatten)]
    pin: Pin,
    #[command(flatten)]
    output: OutputArgs,
    /// Measure nothing, but be one of ours: answer lines of ENTRIES SECONDS on standard input
    #[arg(long, value_name = "NAME")]
    contender: Option<Style>,
}

pub(crate) fn run(args: NopArgs) -> Result<ExitCode> {
    if let Some(style) = args.contender {
        return nop::answer_all(style).map(|()| ExitCode::SUCCESS);
    }
    let json = args.output.json.clone();
    let setup = setup(args)?;
    compare(json, || setup.prepare())
}

/// Checks what was asked for.
fn setup(args: NopArgs) -> Result<Setup> {
    let core = args.pin.choose()?;
    distinct(&args.contenders, |contender| format!("contender '{contender}'"))?;
    distinct(&args.entries, |entries| format!("a queue of {entries}"))?;
    let rounds = Rounds::fixed(args.rounds as usize);
    Ok(Setup {
        plan: Plan { name: "nop".into(), rounds, seed: args.output.seed },
        contenders: args.contenders,
        entries: args.entries,
        slice: args.seconds,
        core,
        peers: peers(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::parsed;
    use crate::usage::UsageError;

    #[test]
    fn without_arguments_it_ends_within_a_minute() {
        let setup = setup(parsed("").unwrap()).unwrap();
        let slices = (setup.contenders.len() + 1) * setup.entries.len() * setup.plan.rounds.least;
        // 2 ms for a ring.
        let slice = setup.cost() + Duration::from_millis(2);
        assert!(slice * slices as u32 <= Duration::from_secs(60), "{slices} slices");
        assert!(setup.plan.rounds.least >= 15);
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
            let error = setup(parsed(line).unwrap()).unwrap_err();
            assert!(
                error.is::<UsageError>() && error.to_string().contains(part),
                "{line}: {error}"
            );
        }
    }
}
