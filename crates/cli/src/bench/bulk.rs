//! `annulus bench bulk`: bulk transfers of datagrams.

use super::args::EndPins;
use super::programs::ProgramArgs;
use annulus_lab::bulk::{self, BENCH};
use annulus_lab::distinct;
use annulus_lab::programs::Setup;
use annulus_load::bulk::{LENGTHS, MAX_WINDOW};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

const EXPLAIN: &str = "\
A sender sends numbered datagrams over UDP as fast as they are acknowledged, a
receiver receives them, each on a thread and a core of its own. Loss is
counted, and does not stall the transfer. All contenders are measured in turn
in short slices, round after round, at each length; the first runs again as a
control.

A ratio is datagrams received per second of CPU time, of both ends together,
over those of C with sendmmsg and recvmmsg (or of the first contender, without
it), taken within each round: the median, with its 95 % interval.

Contenders:
  uring         ours on io_uring, with segmentation and coalescing (GSO, GRO)
  epoll         ours on epoll, with both
  uring-single  ours on io_uring, a datagram per send
  epoll-single  ours on epoll, a datagram per send (only if named)
  c             C: sendmmsg and recvmmsg
  c-segments    C with segmentation and coalescing
  tokio         tokio, a datagram per send

Examples:
  annulus bench bulk                                    about half a minute
  annulus bench bulk --bytes 1200,9000 --contenders uring,c --rounds 40";

/// Compare bulk transfers of datagrams: how many a second of CPU time
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct BulkArgs {
    /// Bytes per datagram: one number or several
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "1200",
          value_parser = clap::value_parser!(u64).range(*LENGTHS.start() as u64..=*LENGTHS.end() as u64))]
    bytes: Vec<u64>,
    /// Datagrams that may be unacknowledged [default: 1 MiB of them, from 8 to
    /// 512]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_WINDOW as u64))]
    window: Option<u64>,
    #[command(flatten)]
    programs: ProgramArgs,
    #[command(flatten)]
    pins: EndPins,
    /// Measure nothing, but be one of ours: answer lines of BYTES WINDOW SECONDS on standard input
    #[arg(long, value_name = "NAME")]
    contender: Option<String>,
}

pub(crate) fn run(args: BulkArgs) -> Result<ExitCode> {
    if let Some(name) = &args.contender {
        let EndPins { sender_pin, receiver_pin } = args.pins;
        return bulk::answer_all(name, sender_pin, receiver_pin).map(|()| ExitCode::SUCCESS);
    }
    let json = args.programs.output.json.clone();
    let setup = setup(args)?;
    super::run::compare(json, || setup.prepare())
}

/// Checks the arguments.
pub(crate) fn setup(args: BulkArgs) -> Result<Setup> {
    distinct(&args.bytes, |bytes| format!("a length of {bytes} bytes"))?;
    let cells = args.bytes.iter().map(|&bytes| bulk::cell(bytes, args.window)).collect();
    args.programs.setup(&BENCH, cells, args.pins.choose()?)
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::ends_within_a_minute;
    use super::*;
    use crate::bench::args::tests::{parsed, refused};
    use std::time::Duration;

    #[test]
    fn without_arguments_it_ends_within_a_minute() {
        // 20 ms to start and to end a transfer.
        ends_within_a_minute(&setup(parsed("").unwrap()).unwrap(), Duration::from_millis(20));
    }

    #[test]
    fn invalid_values_are_named_with_their_limits() {
        let error = parsed::<BulkArgs>("--bytes 7").unwrap_err().to_string();
        assert!(error.contains('7') && error.contains("8..=65507"), "{error}");
        for (line, part) in [
            ("--bytes 1200,1200", "a length of 1200 bytes is given twice"),
            ("--contenders c,c", "contender 'c' is given twice"),
            ("--contenders go", "unknown contender 'go': one of uring, epoll,"),
            ("--sender-pin 9999", "--sender-pin 9999: this process may use "),
        ] {
            refused(setup(parsed(line).unwrap()), part);
        }
    }
}
