//! `annulus bench nop`: operations per second of a ring.

use super::args::Pin;
use super::programs::ProgramArgs;
use annulus_lab::cores::Cores;
use annulus_lab::distinct;
use annulus_lab::nop::{self, BENCH, MAX_ENTRIES};
use annulus_lab::programs::Setup;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

const EXPLAIN: &str = "\
Fills a queue of NOPs, submits them by one system call, and takes every
completion, repeatedly. All contenders are processes on one core, measured in
turn in short slices, round after round, at each queue size; the first runs a
second time as a control.

A ratio is operations a second of CPU time over those of liburing used well (or
of the first contender, without liburing), taken within each round: the median,
with its 95 % interval.

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
    #[command(flatten)]
    programs: ProgramArgs,
    #[command(flatten)]
    pin: Pin,
    /// Measure nothing, but be one of ours: answer lines of ENTRIES SECONDS on standard input
    #[arg(long, value_name = "NAME")]
    contender: Option<String>,
}

pub(crate) fn run(args: NopArgs) -> Result<ExitCode> {
    if let Some(name) = &args.contender {
        return nop::answer_all(name).map(|()| ExitCode::SUCCESS);
    }
    let output = &args.programs.output;
    let output = (output.json.clone(), output.verbose);
    let setup = setup(args)?;
    super::run::compare(output, || setup.prepare())
}

/// Checks the arguments.
pub(crate) fn setup(args: NopArgs) -> Result<Setup> {
    distinct(&args.entries, |entries| format!("a queue of {entries}"))?;
    let core = args.pin.choose()?;
    let cells = args.entries.iter().map(|&entries| nop::cell(entries)).collect();
    args.programs.setup(&BENCH, cells, Cores { server: core, load: core })
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::ends_within_a_minute;
    use super::*;
    use crate::bench::args::tests::{parsed, refused};
    use std::time::Duration;

    #[test]
    fn without_arguments_it_ends_within_a_minute() {
        // 2 ms to make a ring.
        ends_within_a_minute(&setup(parsed("").unwrap()).unwrap(), Duration::from_millis(2));
    }

    #[test]
    fn invalid_values_are_named_with_their_limits() {
        for line in
            ["--entries 0", "--entries 32769", "--entries 64,x", "--rounds 0", "--seconds 0"]
        {
            assert!(parsed::<NopArgs>(line).is_err(), "{line}");
        }
        let error = parsed::<NopArgs>("--entries 32769").unwrap_err().to_string();
        assert!(error.contains("32769") && error.contains("1..=32768"), "{error}");
        for (line, part) in [
            ("--entries 64,64", "a queue of 64 is given twice"),
            ("--contenders ring,ring", "contender 'ring' is given twice"),
            ("--contenders rio", "unknown contender 'rio': one of ring, lookup,"),
            ("--pin 9999", "--pin 9999: this process may use "),
        ] {
            refused(setup(parsed(line).unwrap()), part);
        }
    }
}
