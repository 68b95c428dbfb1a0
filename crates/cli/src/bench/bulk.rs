//! `annulus bench bulk`: how many datagrams get from one sender to one receiver.

use super::args::{EndPins, some_time};
use super::run::{OutputArgs, compare, peers};
use annulus_lab::bench::{Plan, Rounds};
use annulus_lab::bulk::{self, CONTENDERS, Ends, Setup};
use annulus_lab::distinct;
use annulus_load::bulk::{LENGTHS, MAX_WINDOW};
use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::process::ExitCode;
use std::time::Duration;

const EXPLAIN: &str = "\
One sends numbered datagrams over UDP as fast as they are acknowledged, another
receives them, each a thread on a core of its own; what is lost is counted, and
holds nothing up. All contenders are measured in turn in short slices, round
after round, at each length; the first runs a second time as a control.

A ratio is datagrams received a second of CPU time, of both ends together, over
those of C with sendmmsg and recvmmsg (or of the first contender, without it),
taken within each round: the median, with its bootstrap 95 % interval.

Contenders:
  uring         ours on io_uring, with segmentation and coalescing (GSO, GRO)
  epoll         ours on epoll, with both
  uring-single  ours on io_uring, a datagram a send
  epoll-single  ours on epoll, a datagram a send
  c             C: sendmmsg and recvmmsg
  c-segments    C with segmentation and coalescing
  tokio         tokio, a datagram a send

Examples:
  annulus bench bulk                                    about half a minute
  annulus bench bulk --bytes 1200,9000 --contenders uring,c --rounds 40";

/// Compare bulk transfers of datagrams: how many a second of CPU time
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct BulkArgs {
    /// Bytes a datagram: one number or several
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "1200",
          value_parser = clap::value_parser!(u64).range(*LENGTHS.start() as u64..=*LENGTHS.end() as u64))]
    bytes: Vec<u64>,
    /// Datagrams that may be unacknowledged [default: 1 MiB of them, from 8 to
    /// 512]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_WINDOW as u64))]
    window: Option<u64>,
    /// What is measured
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "uring,epoll,uring-single,c,c-segments,tokio",
        value_parser = PossibleValuesParser::new(CONTENDERS.map(|known| known.name))
    )]
    contenders: Vec<String>,
    /// How often each contender is measured at each length
    #[arg(long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// How long a slice is measured: seconds, or 200ms
    #[arg(long, value_name = "TIME", default_value = "0.2", value_parser = some_time)]
    seconds: Duration,
    #[command(flatten)]
    pins: EndPins,
    #[command(flatten)]
    output: OutputArgs,
    /// Measure nothing, but be one of ours: answer lines of BYTES WINDOW SECONDS on standard input
    #[arg(long, value_name = "NAME")]
    contender: Option<Ends>,
}

pub(crate) fn run(args: BulkArgs) -> Result<ExitCode> {
    if let Some(ends) = args.contender {
        let EndPins { sender_pin, receiver_pin } = args.pins;
        bulk::answer_all(ends, sender_pin, receiver_pin)?;
        return Ok(ExitCode::SUCCESS);
    }
    let json = args.output.json.clone();
    let setup = setup(args)?;
    compare(json, || setup.prepare())
}

/// Checks what was asked for.
fn setup(args: BulkArgs) -> Result<Setup> {
    let cores = args.pins.choose()?;
    distinct(&args.contenders, |contender| format!("contender '{contender}'"))?;
    distinct(&args.bytes, |bytes| format!("a length of {bytes} bytes"))?;
    let rounds = Rounds::fixed(args.rounds as usize);
    Ok(Setup {
        plan: Plan { name: "bulk".into(), rounds, seed: args.output.seed },
        contenders: args.contenders,
        cells: args.bytes.iter().map(|&bytes| bulk::cell(bytes, args.window)).collect(),
        slice: args.seconds,
        cores,
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
        let slices = (setup.contenders.len() + 1) * setup.cells.len() * setup.plan.rounds.least;
        // A fifth to warm up, and 20 ms to part.
        let slice = setup.slice * 6 / 5 + Duration::from_millis(20);
        assert!(slice * slices as u32 <= Duration::from_secs(60), "{slices} slices");
        assert!(setup.plan.rounds.least >= 15);
    }

    #[test]
    fn what_cannot_be_names_the_value_and_the_limit() {
        let error = parsed::<BulkArgs>("--bytes 7").unwrap_err().to_string();
        assert!(error.contains('7') && error.contains("8..=65507"), "{error}");
        for (line, part) in [
            ("--bytes 1200,1200", "a length of 1200 bytes is asked for twice"),
            ("--contenders c,c", "contender 'c' is asked for twice"),
            ("--sender-pin 9999", "--sender-pin 9999: this process may use "),
        ] {
            let error = setup(parsed(line).unwrap()).unwrap_err();
            assert!(
                error.is::<UsageError>() && error.to_string().contains(part),
                "{line}: {error}"
            );
        }
    }
}
